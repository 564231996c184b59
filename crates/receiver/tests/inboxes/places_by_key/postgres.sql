-- Several processes may start at once; one after the other creates what is missing.
select pg_advisory_xact_lock(7246755, 1);

-- Keys are bytes, because they may hold any character, and a text may not hold all.

create table if not exists railpost_inbox (
    inbox text not null,
    event_id text collate "C" not null,
    applied_at bigint not null,
    primary key (inbox, event_id)
);
-- Rows come in the order of their time, so this costs next to nothing.
create index if not exists railpost_inbox_age on railpost_inbox using brin (applied_at);

create table if not exists railpost_lanes (
    inbox text not null,
    key bytea not null,
    applied bigint not null,
    changed_at bigint not null,
    primary key (inbox, key)
) with (fillfactor = 80);

create table if not exists railpost_gaps (
    inbox text not null,
    key bytea not null,
    applied bigint not null,
    seq bigint not null,
    noted_at bigint not null
);

-- A lane is null where the order of events does not matter. No try is due where due_at is null: the
-- job is a dead letter.
create table if not exists railpost_work (
    position bigint generated always as identity primary key,
    inbox text not null,
    lane bytea,
    tries integer not null default 0,
    due_at bigint,
    error text not null default '',
    head text not null,
    body bytea not null
);
create index if not exists railpost_work_lane on railpost_work (inbox, lane, position);

-- Admits an event that is next in its lane, or has none: it is fresh under every policy, so it is written at
-- once, in one statement for each table. Says -1, it was; -2, its id is known; otherwise the last seq of its
-- lane, which is locked, or 0 if there is none. A function, because its plans are kept for the connection, and
-- of one number, because that is the cheapest to call.
create or replace function railpost_admit(
    p_inbox text, p_event_id text, p_key bytea, p_seq bigint, p_now bigint
) returns bigint language plpgsql as $$
declare
    last bigint;
begin
    if p_key is not null then
        -- Either waits for a transaction that is moving the lane, and goes by what that leaves.
        if p_seq = 1 then
            insert into railpost_lanes (inbox, key, applied, changed_at)
                values (p_inbox, p_key, p_seq, p_now) on conflict do nothing;
        else
            update railpost_lanes set applied = p_seq, changed_at = p_now
                where inbox = p_inbox and key = p_key and applied = p_seq - 1;
        end if;
        if not found then
            select applied into last from railpost_lanes
                where inbox = p_inbox and key = p_key for update;
            if exists (select from railpost_inbox
                where inbox = p_inbox and event_id = p_event_id) then
                return -2;
            end if;
            return coalesce(last, 0);
        end if;
    end if;
    insert into railpost_inbox (inbox, event_id, applied_at)
        values (p_inbox, p_event_id, p_now) on conflict do nothing;
    if found then
        return -1;
    end if;
    -- The id came under another key before: this one's lane has not moved.
    if p_seq = 1 then
        delete from railpost_lanes where inbox = p_inbox and key = p_key;
    elsif p_key is not null then
        update railpost_lanes set applied = p_seq - 1 where inbox = p_inbox and key = p_key;
    end if;
    return -2;
end $$;
