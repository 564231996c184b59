-- Several processes may start at once; one after the other creates what is missing.
select pg_advisory_xact_lock(7246755, 1);

-- Keys are bytes, because they may hold any character, and a text may not hold all. Ids and lines are ASCII.

create table if not exists railpost_inbox (
    inbox text not null,
    event_id text collate "C" not null,
    applied_at bigint not null,
    primary key (inbox, event_id)
);
-- Rows come in the order of their time, so this costs next to nothing.
create index if not exists railpost_inbox_age on railpost_inbox using brin (applied_at);

create table if not exists railpost_lines (
    inbox text not null,
    line text collate "C" not null,
    applied bigint not null,
    changed_at bigint not null,
    primary key (inbox, line)
) with (fillfactor = 80);

-- The key is empty where the event has none.
create table if not exists railpost_gaps (
    inbox text not null,
    line text collate "C" not null default '',
    key bytea not null,
    applied bigint not null,
    seq bigint not null,
    noted_at bigint not null
);

-- Line and key are null where the order of events does not matter. No try is due where due_at is null: the
-- job is a dead letter.
create table if not exists railpost_work (
    position bigint generated always as identity primary key,
    inbox text not null,
    line text collate "C",
    key bytea,
    tries integer not null default 0,
    due_at bigint,
    error text not null default '',
    head text not null,
    body bytea not null
);
create index if not exists railpost_work_line on railpost_work (inbox, line, position);
create index if not exists railpost_work_key on railpost_work (inbox, key, position);

-- Admits an event whose predecessor was applied, or that has no line: it is fresh under every policy, so it is
-- written at once, in one statement for each table. Says -1, it was; -2, its id is known, and its line was moved
-- on; otherwise the last seq of its line, which is locked, or 0 if there is none. A function, because its plans
-- are kept for the connection, and of one number, because that is the cheapest to call.
create or replace function railpost_admit(
    p_inbox text, p_event_id text, p_line text, p_seq bigint, p_follows bigint, p_now bigint
) returns bigint language plpgsql as $$
declare
    last bigint;
begin
    if p_line is not null then
        -- Either waits for a transaction that is moving the line, and goes by what that leaves.
        if p_follows = 0 then
            insert into railpost_lines as place (inbox, line, applied, changed_at)
                values (p_inbox, p_line, p_seq, p_now) on conflict (inbox, line) do update
                set applied = p_seq, changed_at = p_now where place.applied < p_seq;
        else
            update railpost_lines set applied = p_seq, changed_at = p_now
                where inbox = p_inbox and line = p_line and applied >= p_follows and applied < p_seq;
        end if;
        if not found then
            select applied into last from railpost_lines
                where inbox = p_inbox and line = p_line for update;
            if not exists (select from railpost_inbox
                where inbox = p_inbox and event_id = p_event_id) then
                return coalesce(last, 0);
            end if;
            insert into railpost_lines as place (inbox, line, applied, changed_at)
                values (p_inbox, p_line, p_seq, p_now) on conflict (inbox, line) do update
                set applied = p_seq, changed_at = p_now where place.applied < p_seq;
            return -2;
        end if;
    end if;
    insert into railpost_inbox (inbox, event_id, applied_at)
        values (p_inbox, p_event_id, p_now) on conflict do nothing;
    if found then
        return -1;
    end if;
    return -2;
end $$;
