create table if not exists railpost_inbox (
    inbox text not null,
    event_id text not null,
    applied_at integer not null,
    primary key (inbox, event_id)
) strict, without rowid;
create index if not exists railpost_inbox_age on railpost_inbox (inbox, applied_at);

create table if not exists railpost_lines (
    inbox text not null,
    line text not null,
    applied integer not null,
    changed_at integer not null,
    primary key (inbox, line)
) strict, without rowid;

-- The key is empty where the event has none.
create table if not exists railpost_gaps (
    inbox text not null,
    line text not null default '',
    key text not null,
    applied integer not null,
    seq integer not null,
    noted_at integer not null
) strict;

-- Line and key are null where the order of events does not matter. No try is due where due_at is null: the
-- job is a dead letter.
create table if not exists railpost_work (
    position integer primary key autoincrement,
    inbox text not null,
    line text,
    key text,
    tries integer not null default 0,
    due_at integer,
    error text not null default '',
    head text not null,
    body blob not null
) strict;
create index if not exists railpost_work_line on railpost_work (inbox, line, position);
create index if not exists railpost_work_key on railpost_work (inbox, key, position);
