-- Schema 5: records write audit entries, of endpoints that are switched off and of what people decided; and
-- erasing a tenant is a job.

DROP FUNCTION railpost_record;

-- Records transitions, round by round: the second transition of one delivery is in round 2. `from_set`
-- is the set of standings that allow it, as bits. With `durable` it is on disk when it is answered. With
-- `once_more` it may have been recorded before: then it changes no endpoint that was changed since. Each
-- row of the answer is one of:
--   'fenced'   call number ord touches this partition, which has a later owner: nothing of it was written
--   'skipped'  transition number ord was not written; this is on record, or nothing
-- `p_audit` is the audit entry of an endpoint that is switched off, but for its tenant: it is written if the
-- record is. `u_…` are audit entries of what people decided.
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
    p_at bigint[], p_audit_id bytea[], p_audit text[],
    u_call int[], u_id bytea[], u_at bigint[], u_tenant text[], u_target text[], u_record text[]
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
    switched record;
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
    -- One after the other: each says what it follows.
    FOR switched IN
        SELECT * FROM unnest(p_call, p_id, p_status, p_was, p_failing_since, p_at, p_audit_id, p_audit)
            WITH ORDINALITY AS p (call, id, status, was, failing_since, at, audit_id, audit, ord)
        WHERE p.call <> ALL (fenced) ORDER BY p.ord
    LOOP
        UPDATE endpoints AS e SET status = switched.status, failing_since = switched.failing_since,
                updated_at = switched.at
            WHERE e.id = switched.id AND e.status = switched.was
                AND (NOT once_more OR e.updated_at <= switched.at);
        IF FOUND AND switched.audit IS NOT NULL THEN
            INSERT INTO audit (id, at, tenant, target, record)
                SELECT switched.audit_id, switched.at, t.id, switched.audit::jsonb ->> 'target',
                    jsonb_set(switched.audit::jsonb, '{tenant}', to_jsonb(t.id))::text
                FROM endpoints AS e JOIN tenants AS t ON t.num = e.tenant WHERE e.id = switched.id
                ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;
    IF cardinality(u_id) > 0 THEN
        INSERT INTO audit (id, at, tenant, target, record)
            SELECT u.id, u.at, u.tenant, u.target, u.record
            FROM unnest(u_call, u_id, u_at, u_tenant, u_target, u_record)
                AS u (call, id, at, tenant, target, record)
            WHERE u.call <> ALL (fenced)
            ON CONFLICT DO NOTHING;
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

-- Since when a tenant is being erased, and how many rows that has deleted so far. A tenant whose erasing began
-- under an earlier schema has no instant, and is erased to the end like any other.
ALTER TABLE tenants ADD COLUMN erasing_since bigint;
ALTER TABLE tenants ADD COLUMN erased bigint NOT NULL DEFAULT 0;
