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

-- Locks an event's lane and says what is known of the event: -1, it is fresh and was written; -2, its id is
-- known; otherwise the last seq of its lane, 0 if there is none. One that is next in its lane, or has no
-- lane, is fresh under every policy, so it is written at once. A function, because its plans are kept for
-- the connection, and of one number, because that is the cheapest to call.
create or replace function railpost_admit(
    p_inbox text, p_event_id text, p_key bytea, p_seq bigint, p_now bigint
) returns bigint language plpgsql as $$
declare
    last bigint;
begin
    if p_key is null then
        insert into railpost_inbox (inbox, event_id, applied_at)
            values (p_inbox, p_event_id, p_now) on conflict do nothing;
        return case when found then -1 else -2 end;
    end if;
    loop
        select applied into last from railpost_lanes
            where inbox = p_inbox and key = p_key for update;
        if exists (select from railpost_inbox where inbox = p_inbox and event_id = p_event_id) then
            return -2;
        end if;
        if coalesce(last, 0) <> p_seq - 1 then
            return coalesce(last, 0);
        end if;
        if last is null then
            insert into railpost_lanes (inbox, key, applied, changed_at)
                values (p_inbox, p_key, p_seq, p_now) on conflict do nothing;
            -- Another transaction made the lane meanwhile: look again.
            continue when not found;
        else
            update railpost_lanes set applied = p_seq, changed_at = p_now
                where inbox = p_inbox and key = p_key;
        end if;
        -- A conflict is a copy under another key: it fails, and the sender tries again.
        insert into railpost_inbox (inbox, event_id, applied_at)
            values (p_inbox, p_event_id, p_now);
        return -1;
    end loop;
end $$;
