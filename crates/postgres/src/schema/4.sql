-- Schema 4: lines and eras, one server at a time, and changes that concern one tenant only.

-- An era: the time between two moments at which the database may have lost commits. Key: its number; the
-- highest is the current one. Written when a store begins to be used, when it was restored, and when its
-- server turns out to be another one (its system identifier) or another continuation of it (its timeline).
-- Never deleted: the lines of lanes are named after eras.
CREATE TABLE eras (
    num        int PRIMARY KEY,
    id         bigint NOT NULL,              -- 64 random bits
    began_at   bigint NOT NULL,
    system_id  bigint,                       -- nothing if the server does not tell
    timeline   int
);

-- `holder` is the random number of the server that may write.
ALTER TABLE store DROP COLUMN registry;
ALTER TABLE store ADD COLUMN holder bigint NOT NULL DEFAULT 0;

-- `changes` counts the changes that accepts of the tenant have to know of.
ALTER TABLE tenants ADD COLUMN changes bigint NOT NULL DEFAULT 0;

-- The id and source of an event that came as a CloudEvent, as JSON.
ALTER TABLE events ADD COLUMN cloudevent text;

-- `to_close` is set when an endpoint is removed, until nothing of it is open.
ALTER TABLE endpoints ADD COLUMN to_close boolean NOT NULL DEFAULT false;
UPDATE endpoints SET to_close = true WHERE removed_at IS NOT NULL;
CREATE INDEX endpoints_to_close ON endpoints (num) WHERE to_close;

-- The lane's latest line began in `era`, after number `line_before`; `used_at` is when its last delivery
-- was made.
ALTER TABLE lanes ADD COLUMN era int NOT NULL DEFAULT 1;
ALTER TABLE lanes ADD COLUMN line_before bigint NOT NULL DEFAULT 0;
ALTER TABLE lanes
    ADD COLUMN used_at bigint NOT NULL DEFAULT floor(extract(epoch FROM now()) * 1000)::bigint;
ALTER TABLE lanes ALTER COLUMN used_at SET DEFAULT 0;

-- A line that its lane has left. Key: the lane and the line's last number. Written by the first accept of
-- a later era; goes with its lane.
CREATE TABLE old_lines (
    lane         bigint NOT NULL,            -- lanes.id
    through      bigint NOT NULL,
    era          int NOT NULL,               -- eras.num
    line_before  bigint NOT NULL,
    PRIMARY KEY (lane, through)
);

-- Number `seq` of the lane follows `follows`, and not the one before it: what lies between was closed
-- without being delivered. Key: lane and seq. Written by records; goes when everything up to it is closed
-- and the lane has another one, or with its lane.
CREATE TABLE lane_follows (
    lane     bigint NOT NULL,                -- lanes.id
    seq      bigint NOT NULL,
    follows  bigint NOT NULL,
    PRIMARY KEY (lane, seq)
);

-- A delivery that has left its lane was number `left_seq` of `left_lane`.
ALTER TABLE deliveries ADD COLUMN left_lane bigint;
UPDATE deliveries AS d SET left_lane = coalesce(
        (SELECT l.id FROM lanes AS l WHERE l.endpoint = d.endpoint AND l.key = e.key),
        (SELECT l.id FROM lanes AS l WHERE l.endpoint = d.endpoint AND l.key = ''))
    FROM events AS e WHERE d.left_seq IS NOT NULL AND e.num = d.event;

-- Receivers have applied nothing of the lines that begin here. So the first open delivery of a lane follows
-- nothing, and each of the others follows the open one before it: what lies between was closed.
INSERT INTO lane_follows (lane, seq, follows)
    SELECT b.lane, b.seq, b.before FROM (
        SELECT a.lane, a.seq,
            coalesce(lag(a.seq) OVER (PARTITION BY a.lane ORDER BY a.seq), 0) AS before
        FROM (
            SELECT d.lane, d.seq FROM deliveries AS d WHERE d.standing <= 3 AND d.lane IS NOT NULL
            UNION ALL SELECT l.id, l.last_seq + 1 FROM lanes AS l WHERE l.last_seq > 0
        ) AS a
    ) AS b WHERE b.before <> b.seq - 1;

-- A lane that enters another era leaves its line behind.
CREATE FUNCTION railpost_keep_old_line() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO old_lines (lane, through, era, line_before)
        VALUES (OLD.id, OLD.last_seq, OLD.era, OLD.line_before);
    RETURN NEW;
END
$$;
CREATE TRIGGER lanes_keep_old_line BEFORE UPDATE ON lanes FOR EACH ROW
    WHEN (OLD.era <> NEW.era AND OLD.last_seq > OLD.line_before)
    EXECUTE FUNCTION railpost_keep_old_line();

-- The key of one of the store's advisory locks:
--   'server'    held by a session of the server that has the store, as long as it lives
--   'holder'    shared by all who write; exclusive to change who may
--   'registry'  shared by accepts; exclusive for changes that accepts have to know of, and for eras
--   'skips'     exclusive, for records that close deliveries without delivering them
-- Locks of this kind are in memory alone, where row locks would be written with every group.
CREATE FUNCTION railpost_lock_key(which text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT hashtextextended('railpost ' || which || ' ' || current_schema(), 0)
$$;

-- Refuses a caller that is not the store's holder. Until the transaction ends nobody else becomes it.
CREATE FUNCTION railpost_fence(caller bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(railpost_lock_key('holder'));
    IF NOT EXISTS (SELECT FROM store AS s WHERE s.holder = caller) THEN
        RAISE 'another server has taken the store over' USING ERRCODE = 'RP001';
    END IF;
END
$$;

-- Makes `mine` the store's holder, when those who write at this moment are done, and answers who was it.
-- `only_after`, if given, says who may have been it: whoever takes the lock again learns that another one
-- had it in between.
CREATE FUNCTION railpost_take_over(mine bigint, only_after bigint[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    before bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(railpost_lock_key('holder'));
    SELECT s.holder INTO before FROM store AS s;
    IF before <> ALL (only_after) THEN
        RAISE 'another server has taken the store over' USING ERRCODE = 'RP001';
    END IF;
    UPDATE store SET holder = mine WHERE holder <> mine;
    RETURN before;
END
$$;

-- Begins an era. The caller has the registry's lock for itself.
CREATE FUNCTION railpost_begin_era(now bigint, server_system bigint, server_timeline int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    -- The first and the last 32 bits of such an id are random.
    random text := replace(gen_random_uuid()::text, '-', '');
BEGIN
    INSERT INTO eras (num, id, began_at, system_id, timeline)
        SELECT coalesce(max(e.num), 0) + 1, ('x' || left(random, 8) || right(random, 8))::bit(64)::bigint,
            now, server_system, server_timeline
        FROM eras AS e;
END
$$;

-- Whether the server is not the one of the current era any more. What is not known does not differ.
CREATE FUNCTION railpost_era_is_over(server_system bigint, server_timeline int) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    era eras%ROWTYPE;
BEGIN
    SELECT * INTO era FROM eras AS e ORDER BY e.num DESC LIMIT 1;
    RETURN era.num IS NULL OR coalesce(era.system_id <> server_system, false)
        OR coalesce(era.timeline <> server_timeline, false);
END
$$;

-- What every transaction begins with that gives out numbers: the caller is the holder, and the registry
-- stays as it is. If the server has changed, an era begins with this transaction.
CREATE FUNCTION railpost_enter(caller bigint, server_system bigint, server_timeline int, now bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM railpost_fence(caller);
    IF NOT railpost_era_is_over(server_system, server_timeline) THEN
        PERFORM pg_advisory_xact_lock_shared(railpost_lock_key('registry'));
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(railpost_lock_key('registry'));
    IF railpost_era_is_over(server_system, server_timeline) THEN
        PERFORM railpost_begin_era(now, server_system, server_timeline);
    END IF;
END
$$;

DROP FUNCTION railpost_accept;
DROP FUNCTION railpost_deliver;
DROP FUNCTION railpost_record;

-- Adds deliveries, each at the end of its lane, in one statement. Locks are taken in the order of the
-- lanes' keys, so that two nodes never wait for each other in a circle. Answers the places, and the line
-- of each. The first delivery of an era begins a new line. The caller has entered.
CREATE FUNCTION railpost_deliver(
    d_id bytea[], d_event bigint[], d_endpoint bigint[], d_key bytea[], d_again boolean, now bigint
) RETURNS TABLE (ord bigint, lane bigint, seq bigint, line_before bigint, era bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    era_num int;
    era_id bigint;
BEGIN
    SELECT e.num, e.id INTO era_num, era_id FROM eras AS e ORDER BY e.num DESC LIMIT 1;
    RETURN QUERY
    WITH wanted AS (
        SELECT * FROM unnest(d_id, d_event, d_endpoint, d_key)
            WITH ORDINALITY AS w (id, event, endpoint, key, ord)
    ), longer AS (
        INSERT INTO lanes AS l (endpoint, key, last_seq, era, used_at)
        SELECT w.endpoint, w.key, count(*), era_num, now FROM wanted AS w WHERE w.key IS NOT NULL
            GROUP BY w.endpoint, w.key ORDER BY w.endpoint, w.key
        ON CONFLICT (endpoint, key) DO UPDATE SET last_seq = l.last_seq + excluded.last_seq,
            line_before = CASE WHEN l.era = era_num THEN l.line_before ELSE l.last_seq END,
            era = era_num, used_at = now
        RETURNING l.id, l.endpoint, l.key, l.last_seq, l.line_before
    ), placed AS (
        SELECT w.ord, w.id, w.event, w.endpoint, l.id AS lane, l.line_before,
            l.last_seq + 1 - row_number() OVER (PARTITION BY l.id ORDER BY w.ord DESC) AS seq
        FROM wanted AS w LEFT JOIN longer AS l ON l.endpoint = w.endpoint AND l.key = w.key
    ), added AS (
        INSERT INTO deliveries (id, event, endpoint, lane, seq, standing, replay, again, changed_at)
        SELECT p.id, p.event, p.endpoint, p.lane, CASE WHEN p.lane IS NULL THEN NULL ELSE p.seq END,
            0, d_again, d_again, now
        FROM placed AS p ORDER BY p.ord
    )
    SELECT p.ord, p.lane, p.seq, p.line_before, era_id FROM placed AS p WHERE p.lane IS NOT NULL;
END
$$;

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
    e_payload bytea[], e_first bytea[], e_last bytea[],
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
                accepted_at, traceparent, cloudevent, payload, first, last)
            SELECT w.num, w.tenant, w.id, w.type, w.key, w.content_type, w.schema_version, w.time,
                now, w.traceparent, w.cloudevent, w.payload, w.first, w.last
            FROM unnest(nums, e_tenant, e_id, e_type, e_key, e_content_type, e_schema_version,
                    e_time, e_traceparent, e_cloudevent, e_payload, e_first, e_last)
                AS w (num, tenant, id, type, key, content_type, schema_version, time, traceparent,
                    cloudevent, payload, first, last);
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

-- Notes that number `skipped` of a lane was closed without being delivered: whatever followed it follows
-- the one that it followed.
CREATE FUNCTION railpost_skip(of_lane bigint, skipped bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    before bigint;
BEGIN
    DELETE FROM lane_follows AS f WHERE f.lane = of_lane AND f.seq = skipped
        RETURNING f.follows INTO before;
    before := coalesce(before, skipped - 1);
    UPDATE lane_follows AS f SET follows = before WHERE f.lane = of_lane AND f.follows = skipped;
    IF NOT FOUND THEN
        INSERT INTO lane_follows (lane, seq, follows) VALUES (of_lane, skipped + 1, before)
            ON CONFLICT DO NOTHING;
    END IF;
END
$$;

-- Deletes what nobody will ask for: what lies before everything that is open in these lanes.
CREATE FUNCTION railpost_forget_follows(of_lanes bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM lane_follows AS f USING lanes AS l
        WHERE l.id = ANY (of_lanes) AND f.lane = l.id AND f.seq < coalesce(
            (SELECT min(d.seq) FROM deliveries AS d WHERE d.endpoint = l.endpoint AND d.lane = l.id
                AND d.standing <= 3 AND d.lane IS NOT NULL), l.last_seq + 1);
END
$$;
SELECT railpost_forget_follows(ARRAY(SELECT DISTINCT f.lane FROM lane_follows AS f));

-- Records transitions, round by round: the second transition of one delivery is in round 2. `from_set`
-- is the set of standings that allow it, as bits. With `durable` it is on disk when it is answered. With
-- `once_more` it may have been recorded before: then it changes no endpoint that was changed since. Each
-- row of the answer is one of:
--   'fenced'   call number ord touches this partition, which has a later owner: nothing of it was written
--   'skipped'  transition number ord was not written; this is on record, or nothing
CREATE FUNCTION railpost_record(
    caller bigint, durable boolean, once_more boolean,
    f_call int[], f_partition int[], f_epoch bigint[],
    t_call int[], t_round int[], t_id bytea[], t_from_set bigint[], t_standing bigint[],
    t_due bigint[], t_reason bigint[], t_attempts bigint[], t_round_attempts bigint[],
    t_round_started_at bigint[], t_last_delay bigint[], t_replay boolean[], t_at bigint[],
    t_brief bytea[],
    a_ord bigint[], a_number bigint[], a_started_at bigint[], a_status bigint[],
    a_retry_after bigint[], a_failure bigint[], a_next_at bigint[], a_dns_us bigint[],
    a_connect_us bigint[], a_tls_us bigint[], a_first_byte_us bigint[], a_total_us bigint[],
    a_message text[], a_headers text[], a_body bytea[], a_node bytea[],
    p_call int[], p_id bytea[], p_status bigint[], p_was bigint[], p_failing_since bigint[],
    p_at bigint[]
) RETURNS TABLE (what text, ord bigint, standing bigint) LANGUAGE plpgsql AS $$
DECLARE
    fenced int[] := '{}';
    written bigint[] := '{}';
    now_written bigint[];
    this_round int;
    skips boolean := t_standing && ARRAY[4, 6]::bigint[];
    -- Those in a lane that may be about to leave it undelivered: ord, lane and seq of each.
    leaving record;
    leave_ord bigint[];
    leave_lane bigint[];
    leave_seq bigint[];
    left_lanes bigint[] := '{}';
BEGIN
    PERFORM railpost_fence(caller);
    IF durable THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF skips THEN
        PERFORM pg_advisory_xact_lock(railpost_lock_key('skips'));
    END IF;
    IF EXISTS (SELECT FROM partitions) THEN
        PERFORM FROM partitions AS p WHERE p.id = ANY (f_partition) ORDER BY p.id FOR SHARE;
        RETURN QUERY
            SELECT 'fenced', f.call::bigint, min(f.partition)::bigint
            FROM unnest(f_call, f_partition, f_epoch) AS f (call, partition, epoch)
            JOIN partitions AS p ON p.id = f.partition AND p.epoch > f.epoch GROUP BY f.call;
        SELECT coalesce(array_agg(DISTINCT f.call), '{}') INTO fenced
            FROM unnest(f_call, f_partition, f_epoch) AS f (call, partition, epoch)
            JOIN partitions AS p ON p.id = f.partition AND p.epoch > f.epoch;
    END IF;
    FOR this_round IN SELECT DISTINCT r FROM unnest(t_round) AS r ORDER BY r LOOP
        IF skips THEN
            SELECT array_agg(w.ord), array_agg(d.lane), array_agg(d.seq)
                INTO leave_ord, leave_lane, leave_seq
                FROM unnest(t_round, t_id, t_standing) WITH ORDINALITY AS w (round, id, standing, ord)
                JOIN deliveries AS d ON d.id = w.id
                WHERE w.round = this_round AND w.standing IN (4, 6) AND d.standing <= 3
                    AND d.lane IS NOT NULL;
        END IF;
        WITH wanted AS (
            SELECT * FROM unnest(t_call, t_round, t_id, t_from_set, t_standing, t_due, t_reason,
                t_attempts, t_round_attempts, t_round_started_at, t_last_delay, t_replay, t_at,
                t_brief)
                WITH ORDINALITY AS w (call, round, id, from_set, standing, due, reason, attempts,
                    round_attempts, round_started_at, last_delay, replay, at, brief, ord)
            WHERE w.round = this_round AND w.call <> ALL (fenced)
        ), changed AS (
            UPDATE deliveries AS d SET standing = w.standing, due = w.due, reason = w.reason,
                attempts = greatest(d.attempts, w.attempts), round_attempts = w.round_attempts,
                round_started_at = w.round_started_at, last_delay = w.last_delay,
                replay = w.replay, changed_at = w.at, brief = w.brief,
                left_lane = CASE WHEN w.standing = 4 THEN coalesce(d.lane, d.left_lane)
                    ELSE d.left_lane END,
                left_seq = CASE WHEN w.standing = 4 THEN coalesce(d.seq, d.left_seq)
                    ELSE d.left_seq END,
                lane = CASE WHEN w.standing = 4 THEN NULL ELSE d.lane END,
                seq = CASE WHEN w.standing = 4 THEN NULL ELSE d.seq END
            FROM wanted AS w
            WHERE d.id = w.id AND (1 << d.standing::int) & w.from_set <> 0
            RETURNING w.ord
        )
        SELECT array_agg(c.ord) INTO now_written FROM changed AS c;
        written := written || coalesce(now_written, '{}');
        IF skips THEN
            FOR leaving IN
                SELECT u.lane, u.seq FROM unnest(leave_ord, leave_lane, leave_seq) AS u (ord, lane, seq)
                WHERE u.ord = ANY (now_written) ORDER BY u.lane, u.seq
            LOOP
                PERFORM railpost_skip(leaving.lane, leaving.seq);
                left_lanes := left_lanes || leaving.lane;
            END LOOP;
        END IF;
    END LOOP;
    IF cardinality(left_lanes) > 0 THEN
        PERFORM railpost_forget_follows(left_lanes);
    END IF;
    IF cardinality(a_ord) > 0 THEN
        INSERT INTO attempts (delivery, number, started_at, status, retry_after, failure, led_to,
                next_at, dns_us, connect_us, tls_us, first_byte_us, total_us, message, headers, body,
                node)
            SELECT t_id[a.ord], a.number, a.started_at, a.status, a.retry_after, a.failure,
                t_standing[a.ord], a.next_at, a.dns_us, a.connect_us, a.tls_us, a.first_byte_us,
                a.total_us, a.message, a.headers, a.body, a.node
            FROM unnest(a_ord, a_number, a_started_at, a_status, a_retry_after, a_failure, a_next_at,
                a_dns_us, a_connect_us, a_tls_us, a_first_byte_us, a_total_us, a_message, a_headers,
                a_body, a_node)
                AS a (ord, number, started_at, status, retry_after, failure, next_at, dns_us,
                    connect_us, tls_us, first_byte_us, total_us, message, headers, body, node)
            WHERE a.ord = ANY (written)
            ON CONFLICT DO NOTHING;
    END IF;
    IF cardinality(p_id) > 0 THEN
        UPDATE endpoints AS e SET status = p.status, failing_since = p.failing_since,
                updated_at = p.at
            FROM (SELECT DISTINCT ON (u.id) u.id, u.status, u.failing_since, u.at,
                    first_value(u.was) OVER (PARTITION BY u.id ORDER BY u.ord) AS was
                FROM unnest(p_call, p_id, p_status, p_was, p_failing_since, p_at)
                WITH ORDINALITY AS u (call, id, status, was, failing_since, at, ord)
                WHERE u.call <> ALL (fenced) ORDER BY u.id, u.ord DESC) AS p
            WHERE e.id = p.id AND e.status = p.was AND (NOT once_more OR e.updated_at <= p.at);
    END IF;
    IF cardinality(written) < cardinality(t_id) THEN
        RETURN QUERY
            SELECT 'skipped', w.ord, d.standing
            FROM unnest(t_id, t_call) WITH ORDINALITY AS w (id, call, ord)
            LEFT JOIN deliveries AS d ON d.id = w.id
            WHERE w.ord <> ALL (written) AND w.call <> ALL (fenced);
    END IF;
END
$$;

-- The plan that finds deliveries by their ids is kept, and may be of a time when they fitted one page.
-- Without walks the few tables that have to be walked look dear: not dear enough to compile for.
ALTER FUNCTION railpost_record SET enable_seqscan = off;
ALTER FUNCTION railpost_record SET jit = off;

-- Looks at up to `most` lanes after `after` and deletes those with nothing open whose last delivery was
-- made before `unused_since`. Answers how many went, and the last one that was looked at, or nothing at
-- the end. A lane that an accept has locked is left alone; one that got a delivery before it was locked
-- is seen to have it, because the second statement looks again.
CREATE FUNCTION railpost_prune_lanes(after bigint, most bigint, unused_since bigint)
RETURNS TABLE (gone bigint, looked_at bigint) LANGUAGE plpgsql AS $$
DECLARE
    looked bigint[];
    locked bigint[];
    deleted bigint[];
BEGIN
    looked := ARRAY(SELECT l.id FROM lanes AS l WHERE l.id > after ORDER BY l.id LIMIT most);
    locked := ARRAY(SELECT l.id FROM lanes AS l WHERE l.id = ANY (looked) AND l.used_at < unused_since
        ORDER BY l.id FOR UPDATE SKIP LOCKED);
    WITH old AS (
        DELETE FROM lanes AS l WHERE l.id = ANY (locked) AND l.used_at < unused_since AND NOT EXISTS (
            SELECT FROM deliveries AS d WHERE d.endpoint = l.endpoint AND d.lane = l.id
                AND d.standing <= 3 AND d.lane IS NOT NULL)
        RETURNING l.id
    )
    SELECT array_agg(o.id) INTO deleted FROM old AS o;
    PERFORM railpost_forget_lanes(deleted);
    RETURN QUERY SELECT coalesce(cardinality(deleted), 0)::bigint,
        CASE WHEN cardinality(looked) = most THEN looked[cardinality(looked)] END;
END
$$;

-- Deletes what is on record of lanes that are gone.
CREATE FUNCTION railpost_forget_lanes(deleted bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM old_lines AS o WHERE o.lane = ANY (deleted);
    DELETE FROM lane_follows AS f WHERE f.lane = ANY (deleted);
END
$$;
