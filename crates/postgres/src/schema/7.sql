-- Schema 7: who brought an event, and what the audit trail says about one thing.

-- Who brought the event, in a few bytes (accepted_by.rs). Events of earlier versions have none.
ALTER TABLE events ADD COLUMN accepted_by bytea;

-- People ask for the entries about one thing.
CREATE INDEX audit_by_target ON audit (tenant, target, id);

DROP FUNCTION railpost_accept;

-- Accepts events and their deliveries, or says why not and writes nothing. Each row of the answer is
-- one of:
--   'stale'     tenant number ord has changed since the caller looked
--   'event'     event number ord was accepted before
--   'answered'  the idempotency key number ord is on record
--   'placed'    delivery number ord got this lane, seq and line; only these if it was accepted
-- What is on record is looked for only when writing it again failed: then by a fresh plan, because one
-- that is kept may be of a time when walking all events of a tenant was the cheapest.
CREATE FUNCTION railpost_accept(
    caller bigint, server_system bigint, server_timeline int, now bigint,
    t_num bigint[], t_changes bigint[],
    e_tenant bigint[], e_id text[], e_type text[], e_key bytea[], e_content_type text[],
    e_schema_version bigint[], e_time bigint[], e_traceparent text[], e_cloudevent text[],
    e_payload bytea[], e_first bytea[], e_last bytea[], e_accepted_by bytea[],
    d_id bytea[], d_event int[], d_endpoint bigint[], d_key bytea[],
    i_owner text[], i_route text[], i_key text[], i_fingerprint bytea[], i_status int[],
    i_body bytea[], i_tenant text[], i_expires_at bigint[]
) RETURNS TABLE (what text, ord bigint, lane bigint, seq bigint, line_before bigint, era bigint)
LANGUAGE plpgsql AS $$
DECLARE
    numbers regclass := pg_get_serial_sequence('events', 'num');
    nums bigint[];
    added int;
BEGIN
    PERFORM railpost_enter(caller, server_system, server_timeline, now);
    RETURN QUERY
        SELECT 'stale', w.ord, 0::bigint, 0::bigint, 0::bigint, 0::bigint
        FROM unnest(t_num, t_changes) WITH ORDINALITY AS w (num, changes, ord)
        WHERE w.changes IS DISTINCT FROM
            (SELECT t.changes FROM tenants AS t WHERE t.num = w.num AND NOT t.erasing);
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT array_agg(nextval(numbers)) INTO nums FROM generate_series(1, cardinality(e_id));
    BEGIN
        INSERT INTO events (num, tenant, id, type, key, content_type, schema_version, time,
                accepted_at, traceparent, cloudevent, payload, first, last, accepted_by)
            SELECT w.num, w.tenant, w.id, w.type, w.key, w.content_type, w.schema_version, w.time,
                now, w.traceparent, w.cloudevent, w.payload, w.first, w.last, w.accepted_by
            FROM unnest(nums, e_tenant, e_id, e_type, e_key, e_content_type, e_schema_version,
                    e_time, e_traceparent, e_cloudevent, e_payload, e_first, e_last, e_accepted_by)
                AS w (num, tenant, id, type, key, content_type, schema_version, time, traceparent,
                    cloudevent, payload, first, last, accepted_by);
        INSERT INTO idempotency (owner, route, key, fingerprint, status, body, tenant, expires_at)
            SELECT * FROM unnest(i_owner, i_route, i_key, i_fingerprint, i_status, i_body, i_tenant,
                i_expires_at)
            ON CONFLICT (owner, route, key) DO UPDATE SET fingerprint = excluded.fingerprint,
                status = excluded.status, body = excluded.body, tenant = excluded.tenant,
                expires_at = excluded.expires_at WHERE idempotency.expires_at <= now;
        GET DIAGNOSTICS added = ROW_COUNT;
        IF added < cardinality(i_key) THEN
            RAISE unique_violation;
        END IF;
    EXCEPTION WHEN unique_violation THEN
        RETURN QUERY EXECUTE
            'SELECT ''event'', w.ord, 0::bigint, 0::bigint, 0::bigint, 0::bigint
            FROM unnest($1, $2) WITH ORDINALITY AS w (tenant, id, ord)
            JOIN events AS e ON e.tenant = w.tenant AND e.id = w.id
            UNION ALL
            SELECT ''answered'', w.ord, 0::bigint, 0::bigint, 0::bigint, 0::bigint
            FROM unnest($3, $4, $5) WITH ORDINALITY AS w (owner, route, key, ord)
            JOIN idempotency AS i ON i.owner = w.owner AND i.route = w.route AND i.key = w.key
                AND i.expires_at > $6'
            USING e_tenant, e_id, i_owner, i_route, i_key, now;
        IF NOT FOUND THEN
            -- Whatever was in the way is gone. The caller tries again.
            RAISE;
        END IF;
        RETURN;
    END;
    RETURN QUERY
        SELECT 'placed', p.ord, p.lane, p.seq, p.line_before, p.era FROM railpost_deliver(
            d_id, ARRAY(SELECT nums[w.event] FROM unnest(d_event) WITH ORDINALITY AS w (event, ord)
                ORDER BY w.ord), d_endpoint, d_key, false, now) AS p;
END
$$;
