/** The tables of an inbox and its queue. They are those of the Rust crate, so both can use one database. */

import type { Dialect } from "./statement.js";

const SQLITE = [
  `create table if not exists railpost_inbox (
    inbox text not null,
    event_id text not null,
    applied_at integer not null,
    primary key (inbox, event_id)
) strict, without rowid`,
  `create index if not exists railpost_inbox_age on railpost_inbox (inbox, applied_at)`,
  `create table if not exists railpost_lines (
    inbox text not null,
    line text not null,
    applied integer not null,
    changed_at integer not null,
    primary key (inbox, line)
) strict, without rowid`,
  `create table if not exists railpost_gaps (
    inbox text not null,
    line text not null default '',
    key text not null,
    applied integer not null,
    seq integer not null,
    noted_at integer not null
) strict`,
  `create table if not exists railpost_work (
    position integer primary key autoincrement,
    inbox text not null,
    line text,
    key text,
    tries integer not null default 0,
    due_at integer,
    error text not null default '',
    head text not null,
    body blob not null
) strict`,
  `create index if not exists railpost_work_line on railpost_work (inbox, line, position)`,
  `create index if not exists railpost_work_key on railpost_work (inbox, key, position)`,
];

/** Writes an event that is fresh under every policy in one round trip; reads and locks otherwise. */
const ADMIT_FUNCTION = `create or replace function railpost_admit(
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
end $$`;

const POSTGRES = [
  // Several processes may start at once; one after the other creates what is missing.
  `select pg_advisory_xact_lock(7246755, 1)`,
  `create table if not exists railpost_inbox (
    inbox text not null,
    event_id text collate "C" not null,
    applied_at bigint not null,
    primary key (inbox, event_id)
)`,
  `create index if not exists railpost_inbox_age on railpost_inbox using brin (applied_at)`,
  `create table if not exists railpost_lines (
    inbox text not null,
    line text collate "C" not null,
    applied bigint not null,
    changed_at bigint not null,
    primary key (inbox, line)
) with (fillfactor = 80)`,
  `create table if not exists railpost_gaps (
    inbox text not null,
    line text collate "C" not null default '',
    key bytea not null,
    applied bigint not null,
    seq bigint not null,
    noted_at bigint not null
)`,
  `create table if not exists railpost_work (
    position bigint generated always as identity primary key,
    inbox text not null,
    line text collate "C",
    key bytea,
    tries integer not null default 0,
    due_at bigint,
    error text not null default '',
    head text not null,
    body bytea not null
)`,
  `create index if not exists railpost_work_line on railpost_work (inbox, line, position)`,
  `create index if not exists railpost_work_key on railpost_work (inbox, key, position)`,
  ADMIT_FUNCTION,
];

/** The statements that create the tables where they are missing, in order. */
export function schemaStatements(dialect: Dialect): readonly string[] {
  return dialect === "postgres" ? POSTGRES : SQLITE;
}

/** The schema as plain SQL, for migrations of your own. */
export function schemaSql(dialect: Dialect): string {
  return schemaStatements(dialect)
    .map((statement) => `${statement};\n`)
    .join("\n");
}
