//! How a restored store moves what is open into its new era, for both databases.
//!
//! Between the backup and the restore a receiver may have applied later numbers of a line than the restored
//! store knows of. If an open delivery were sent in that line, the receiver could take it for old and drop
//! it. So each lane with open deliveries begins a new line with the first of them.

/// Moves the lanes with open deliveries into the latest era. The lines that they leave are in `old_lines`
/// as if they ended with the lane's last number; the last statements cut them where the new line begins.
pub const MOVE_OPEN_LANES: &str = "
    UPDATE lanes SET era = (SELECT max(num) FROM eras), line_before = o.first - 1
        FROM (SELECT lane, min(seq) AS first FROM deliveries
              WHERE standing <= 3 AND lane IS NOT NULL GROUP BY endpoint, lane) AS o
        WHERE lanes.id = o.lane;
    DELETE FROM old_lines WHERE EXISTS (
        SELECT 1 FROM lanes AS l WHERE l.id = old_lines.lane
            AND l.era = (SELECT max(num) FROM eras) AND old_lines.line_before >= l.line_before);
    UPDATE old_lines SET through = l.line_before FROM lanes AS l
        WHERE l.id = old_lines.lane AND l.era = (SELECT max(num) FROM eras)
            AND old_lines.through > l.line_before;";

/// Only open deliveries are sent in the new line. So each of them, and the lane's next one, follows the
/// open one before it, even if one between them was delivered in the old line.
pub const FOLLOW_OPEN: &str = "
    INSERT INTO lane_follows (lane, seq, follows)
        SELECT b.lane, b.seq, b.before FROM (
            SELECT a.lane, a.seq, lag(a.seq) OVER (PARTITION BY a.lane ORDER BY a.seq) AS before
            FROM (SELECT lane, seq FROM deliveries WHERE standing <= 3 AND lane IS NOT NULL
                  UNION ALL SELECT id, last_seq + 1 FROM lanes
                  WHERE era = (SELECT max(num) FROM eras)) AS a) AS b
        WHERE b.before <> b.seq - 1
        ON CONFLICT (lane, seq) DO UPDATE SET follows = excluded.follows;";
