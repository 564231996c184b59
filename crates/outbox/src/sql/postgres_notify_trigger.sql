-- Wakes Railpost at each commit that wrote to the outbox, for `wake = "notify"`.
--
-- Commits that notify take a lock of the whole server one after the other: with many writers this costs
-- them more than half of their commits per second.
CREATE OR REPLACE FUNCTION railpost_outbox_notify() RETURNS trigger
LANGUAGE plpgsql
AS $railpost_outbox_notify$
BEGIN
  PERFORM pg_notify('railpost_outbox', '');
  RETURN NULL;
END
$railpost_outbox_notify$;

CREATE TRIGGER railpost_outbox_notify
  AFTER INSERT ON railpost_outbox
  FOR EACH STATEMENT EXECUTE FUNCTION railpost_outbox_notify();
