create table if not exists railpost_inbox (
    inbox text not null,
    event_id text not null,
    applied_at integer not null,
    primary key (inbox, event_id)
) strict, without rowid;
create index if not exists railpost_inbox_age on railpost_inbox (inbox, applied_at);

create table if not exists railpost_lanes (
    inbox text not null,
    key text not null,
    applied integer not null,
    changed_at integer not null,
    primary key (inbox, key)
) strict, without rowid;

create table if not exists railpost_gaps (
    inbox text not null,
    key text not null,
    applied integer not null,
    seq integer not null,
    noted_at integer not null
) strict;

-- A lane is null where the order of events does not matter. No try is due where due_at is null: the
-- job is a dead letter.
create table if not exists railpost_work (
    position integer primary key autoincrement,
    inbox text not null,
    lane text,
    tries integer not null default 0,
    due_at integer,
    error text not null default '',
    head text not null,
    body blob not null
) strict;
create index if not exists railpost_work_lane on railpost_work (inbox, lane, position);
