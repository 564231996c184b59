-- Schema 3: what a group of events costs does not depend on plans that were made while the tables were
-- small.

-- Adds deliveries, each at the end of its lane, in one statement. Locks are taken in the order of the
-- lanes' keys, so that two nodes never wait for each other in a circle. Answers the places. In a language
-- whose functions keep their plans: one in plain SQL is read and planned at every call.
CREATE OR REPLACE FUNCTION railpost_deliver(
    d_id bytea[], d_event bigint[], d_endpoint bigint[], d_key bytea[], d_again boolean, now bigint
) RETURNS TABLE (ord bigint, lane bigint, seq bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH wanted AS (
        SELECT * FROM unnest(d_id, d_event, d_endpoint, d_key)
            WITH ORDINALITY AS w (id, event, endpoint, key, ord)
    ), longer AS (
        INSERT INTO lanes AS l (endpoint, key, last_seq)
        SELECT w.endpoint, w.key, count(*) FROM wanted AS w WHERE w.key IS NOT NULL
            GROUP BY w.endpoint, w.key ORDER BY w.endpoint, w.key
        ON CONFLICT (endpoint, key) DO UPDATE SET last_seq = l.last_seq + excluded.last_seq
        RETURNING l.id, l.endpoint, l.key, l.last_seq
    ), placed AS (
        SELECT w.ord, w.id, w.event, w.endpoint, l.id AS lane,
            l.last_seq + 1 - row_number() OVER (PARTITION BY l.id ORDER BY w.ord DESC) AS seq
        FROM wanted AS w LEFT JOIN longer AS l ON l.endpoint = w.endpoint AND l.key = w.key
    ), added AS (
        INSERT INTO deliveries (id, event, endpoint, lane, seq, standing, again, changed_at)
        SELECT p.id, p.event, p.endpoint, p.lane, CASE WHEN p.lane IS NULL THEN NULL ELSE p.seq END,
            0, d_again, now
        FROM placed AS p ORDER BY p.ord
    )
    SELECT p.ord, p.lane, p.seq FROM placed AS p WHERE p.lane IS NOT NULL;
END
$$;

-- Accepts events and their deliveries, or says why not and writes nothing. Each row of the answer is
-- one of:
--   'stale'     the registry has changed since the caller looked
--   'event'     event number ord was accepted before
--   'answered'  the idempotency key number ord is on record
--   'placed'    delivery number ord got this lane and seq; only these if it was accepted
-- What is on record is looked for only when writing it again failed: then by a fresh plan, because one
-- that is kept may be of a time when walking all events of a tenant was the cheapest.
CREATE OR REPLACE FUNCTION railpost_accept(
    known_registry bigint, now bigint,
    e_tenant bigint[], e_id text[], e_type text[], e_key bytea[], e_content_type text[],
    e_schema_version bigint[], e_time bigint[], e_traceparent text[], e_payload bytea[],
    e_first bytea[], e_last bytea[],
    d_id bytea[], d_event int[], d_endpoint bigint[], d_key bytea[],
    i_owner text[], i_route text[], i_key text[], i_fingerprint bytea[], i_status int[],
    i_body bytea[], i_tenant text[], i_expires_at bigint[]
) RETURNS TABLE (what text, ord bigint, lane bigint, seq bigint) LANGUAGE plpgsql AS $$
DECLARE
    numbers regclass := pg_get_serial_sequence('events', 'num');
    nums bigint[];
    added int;
BEGIN
    PERFORM FROM store AS s WHERE s.registry = known_registry FOR SHARE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'stale', 0::bigint, 0::bigint, 0::bigint;
        RETURN;
    END IF;
    SELECT array_agg(nextval(numbers)) INTO nums FROM generate_series(1, cardinality(e_id));
    BEGIN
        INSERT INTO events (num, tenant, id, type, key, content_type, schema_version, time,
                accepted_at, traceparent, payload, first, last)
            SELECT w.num, w.tenant, w.id, w.type, w.key, w.content_type, w.schema_version, w.time,
                now, w.traceparent, w.payload, w.first, w.last
            FROM unnest(nums, e_tenant, e_id, e_type, e_key, e_content_type, e_schema_version,
                    e_time, e_traceparent, e_payload, e_first, e_last)
                AS w (num, tenant, id, type, key, content_type, schema_version, time, traceparent,
                    payload, first, last);
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
            'SELECT ''event'', w.ord, 0::bigint, 0::bigint
            FROM unnest($1, $2) WITH ORDINALITY AS w (tenant, id, ord)
            JOIN events AS e ON e.tenant = w.tenant AND e.id = w.id
            UNION ALL
            SELECT ''answered'', w.ord, 0::bigint, 0::bigint
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
        SELECT 'placed', p.ord, p.lane, p.seq FROM railpost_deliver(
            d_id, ARRAY(SELECT nums[w.event] FROM unnest(d_event) WITH ORDINALITY AS w (event, ord)
                ORDER BY w.ord), d_endpoint, d_key, false, now) AS p;
END
$$;

-- The plan that finds deliveries by their ids is kept too, and may be of a time when they fitted one
-- page. Without walks the few tables that have to be walked look dear: not dear enough to compile for.
ALTER FUNCTION railpost_record SET enable_seqscan = off;
ALTER FUNCTION railpost_record SET jit = off;
