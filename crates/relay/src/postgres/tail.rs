//! Log tailing: inserts into a table, or messages, in the order of commits.
//!
//! A position is confirmed at the server when all before it is durable here, and noted in the store
//! before that. So a slot that was confirmed further than the store knows was moved by somebody else, or
//! made again: then the table is read again, and people are told. So it is if the publication or its table
//! is another one than the position was noted for.
//!
//! The table is the truth: a row that it still shows after the log was read past its commit is one that
//! the log does not tell of, and is taken from the table.

use std::time::Duration;

use railpost_replication::pgoutput::Message;
use railpost_replication::{
    Connection, Error, ErrorKind, Frame, Lsn, NewSlot, Start, Stream, SystemIdentity, Target,
    WalStatus,
};
use railpost_store::SourcePosition;
use tokio::time::{Instant, timeout};

use super::connect::{Address, Session};
use super::log_rows::{LogMapping, MESSAGE_PREFIX, read_message};
use super::publication::{LOOK_EVERY, Publication};
use super::table::{Missing, Table, Visible};
use crate::config::{Mode, SourceConfig};
use crate::context::Observation;
use crate::handover::Handover;
use crate::limits::{
    BACK_OFF_MIN, CONFIRM_EVERY, IDLE_CONFIRM_EVERY, LEASE_RENEW_AFTER, REMOVE_EVERY,
    SLOT_WAIT_MAX, TAIL_TICK,
};
use crate::row::SourceRow;
use crate::run::SourceTask;
use crate::status::SlotStatus;
use crate::trouble::Trouble;

/// Follows the log until something fails.
pub(crate) async fn run(task: &SourceTask, handover: &mut Handover) -> Result<(), Trouble> {
    let config = &*task.config;
    let address = Address::of(config, task.context.store_address.as_ref())?;
    let session = address.connect(config.name.as_str()).await?;
    let table = match config.mode {
        Mode::Messages => None,
        _ => Some(Table::open(address.connect(config.name.as_str()).await?, config).await?),
    };
    let target = address
        .replication_target()?
        .with_application_name(&format!("railpost outbox {}", config.name));
    // Before the table is read: a change from here on is noticed.
    let publication = Publication::look(&session.client, config).await?;
    let (stream, from) = begin(task, handover, &target, table.as_ref(), &publication).await?;
    task.reading();
    let mut tail = Tail {
        task,
        config,
        session,
        table,
        publication,
        looked_at: Instant::now(),
        visible: None,
        mapping: None,
        rows: Vec::new(),
        keys: Vec::new(),
        missing: Missing::default(),
        is_idle: true,
        taken: Vec::new(),
        remove_at: Instant::now(),
        done: from.position,
        system: from.system,
        noted: from.position,
        noted_at: Instant::now(),
    };
    let ended = tail.follow(stream, handover).await;
    if let Err(Ended::PublicationMissing(error)) = &ended
        && Publication::look(&tail.session.client, config).await.is_ok()
    {
        give_up_slot(task, &target, error).await?;
    }
    ended.map_err(|ended| match ended {
        Ended::Trouble(trouble) => trouble,
        Ended::PublicationMissing(error) => trouble(&error, config),
    })
}

/// Why a stream ended.
enum Ended {
    Trouble(Trouble),
    /// The log holds changes from a time when there was no publication: no stream gets past them.
    PublicationMissing(Error),
}

impl From<Trouble> for Ended {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

/// The publication was dropped and made again: a new slot, which the next try makes, begins behind it.
async fn give_up_slot(task: &SourceTask, target: &Target, error: &Error) -> Result<(), Trouble> {
    let config = &*task.config;
    let failed = |error: Error| trouble(&error, config);
    let alarm = format!(
        "the publication was away for a while, and slot {} is made again: {error}",
        config.slot
    );
    task.context.observer.observe(&config.name, &Observation::Alarm(&alarm));
    let mut connection = Connection::connect(target).await.map_err(failed)?;
    connection.drop_slot(&config.slot).await.map_err(failed)
}

/// Where a stream began.
struct Began {
    /// What the position belongs to.
    system: String,
    position: Lsn,
}

/// Makes sure of the slot, starts the stream, and reads the table if the log cannot tell all.
async fn begin(
    task: &SourceTask,
    handover: &mut Handover,
    target: &Target,
    table: Option<&Table>,
    publication: &Publication,
) -> Result<(Stream, Began), Trouble> {
    let config = &*task.config;
    let failed = |error: Error| trouble(&error, config);
    let mut connection = Connection::connect(target).await.map_err(failed)?;
    let system = connection.identify_system().await.map_err(failed)?;
    let sources = &task.context.sources;
    let saved = sources.source_position(&config.name).await?;
    let saved = saved.filter(|saved| saved.system.split(' ').next() == Some(&system.system_id));
    let known = saved.as_ref().map(|saved| Lsn::from_u64(saved.number));
    let mut plan = plan(&mut connection, config, known, &system).await?;
    let position_of = publication.system(&system.system_id);
    if let Some(saved) = saved.filter(|saved| saved.system != position_of) {
        plan.publication_changed(config, Lsn::from_u64(saved.number));
    }
    let publications = [config.slot.as_str()];
    let start = Start {
        slot: &config.slot,
        from: plan.from,
        publications: &publications,
        messages: config.mode == Mode::Messages,
    };
    // The process that has the slot reads the source: without it the table is another reader's.
    let stream = connection.start(&start).await.map_err(failed)?;
    if let Some(alarm) = &plan.alarm {
        task.context.observer.observe(&config.name, &Observation::Alarm(alarm));
    }
    let began = Began { system: position_of, position: plan.from };
    if let Some(table) = table.filter(|_| plan.read_table) {
        table.read_all(config, handover).await?;
    }
    // Noted before anything is confirmed, so that a slot that is lost from here on is missed; and not
    // before the table was read, so that it is read again if that was interrupted.
    let position = SourcePosition { system: began.system.clone(), number: began.position.as_u64() };
    sources.save_source_position(&config.name, handover.epoch(), position).await?;
    Ok((stream, began))
}

/// Where the stream is to begin.
struct Plan {
    from: Lsn,
    /// The log may not have all that the table has.
    read_table: bool,
    /// What people should know.
    alarm: Option<String>,
}

impl Plan {
    /// What was written meanwhile may never have been published.
    fn publication_changed(&mut self, config: &SourceConfig, known: Lsn) {
        self.read_table = true;
        self.alarm.get_or_insert_with(|| {
            format!(
                "publication {} or its table was changed after the log was read up to {known}: the table is read again",
                config.slot
            )
        });
    }
}

async fn plan(
    connection: &mut Connection,
    config: &SourceConfig,
    known: Option<Lsn>,
    system: &SystemIdentity,
) -> Result<Plan, Trouble> {
    let failed = |error: Error| trouble(&error, config);
    let slot = connection.slot(&config.slot).await.map_err(failed)?;
    let again = match config.mode {
        Mode::Messages => "messages between the two are lost",
        _ => "the table is read again",
    };
    let lost = slot.as_ref().is_some_and(|slot| slot.wal_status == WalStatus::Lost);
    let confirmed = slot.and_then(|slot| slot.confirmed).filter(|_| !lost);
    let Some(confirmed) = confirmed else {
        if lost {
            connection.drop_slot(&config.slot).await.map_err(failed)?;
        }
        let new =
            NewSlot { name: &config.slot, failover: config.failover, wait_max: SLOT_WAIT_MAX };
        let from = connection.create_slot(&new).await.map_err(failed)?;
        let slot = &config.slot;
        let alarm = known.map(|known| match lost {
            true => format!(
                "the server gave up slot {slot} at {known}; a new one begins at {from}: {again}"
            ),
            false => format!(
                "slot {slot} is gone, read up to {known}; a new one begins at {from}: {again}"
            ),
        });
        return Ok(Plan { from, read_table: true, alarm });
    };
    let slot = &config.slot;
    let flushed = system.flushed;
    Ok(match known {
        Some(known) if known < confirmed => {
            let alarm = format!(
                "slot {slot} stands at {confirmed} and was read up to {known} only: {again}"
            );
            Plan { from: confirmed, read_table: true, alarm: Some(alarm) }
        }
        Some(known) if known > flushed => {
            let alarm = format!("the log ends at {flushed} and was read up to {known}: {again}");
            Plan { from: confirmed, read_table: true, alarm: Some(alarm) }
        }
        Some(known) => Plan { from: known, read_table: false, alarm: None },
        // The slot is older than what is known of it: whatever was confirmed is in the table.
        None => Plan { from: confirmed, read_table: true, alarm: None },
    })
}

/// A source whose log is followed.
struct Tail<'r> {
    task: &'r SourceTask,
    config: &'r SourceConfig,
    /// For looking at the slot and the publication.
    session: Session,
    table: Option<Table>,
    /// The publication as it was when the stream began, and when it was last looked at.
    publication: Publication,
    looked_at: Instant,
    /// What the table showed, until the log was read so far.
    visible: Option<Visible>,
    /// How the table looked last.
    mapping: Option<(u32, LogMapping)>,
    rows: Vec<SourceRow>,
    /// What names the rows in their table.
    keys: Vec<String>,
    missing: Missing,
    /// Nothing of this source has come last.
    is_idle: bool,
    /// What names rows in their table that are durable here, and when they are to be removed there.
    taken: Vec<String>,
    remove_at: Instant,
    /// All before it is durable here, but for what is in `rows`.
    done: Lsn,
    system: String,
    /// What the store knows of `done`.
    noted: Lsn,
    noted_at: Instant,
}

impl Tail<'_> {
    async fn follow(&mut self, mut stream: Stream, handover: &mut Handover) -> Result<(), Ended> {
        let mut looked_at = Instant::now();
        loop {
            tokio::select! {
                frame = timeout(self.wait(), stream.next()) => {
                    if let Ok(frame) = frame {
                        let frame = frame.map_err(|error| self.ended(error))?;
                        self.take(frame)?;
                    }
                }
                () = self.task.wake.notified() => {
                    handover.renew().await?;
                    continue;
                }
            };
            while self.rows.len() < self.config.batch
                && let Some(frame) = stream.try_next()
            {
                self.take(frame)?;
            }
            handover.keep().await?;
            self.hand_over(handover).await?;
            self.remove_taken().await?;
            self.look_at_table(handover).await?;
            self.confirm(&stream, handover).await?;
            if looked_at.elapsed() >= IDLE_CONFIRM_EVERY {
                looked_at = Instant::now();
                self.look_at_slot().await?;
            }
        }
    }

    fn ended(&self, error: Error) -> Ended {
        match error.kind() {
            ErrorKind::PublicationMissing => Ended::PublicationMissing(error),
            _ => Ended::Trouble(trouble(&error, self.config)),
        }
    }

    /// How long to wait for the log.
    fn wait(&self) -> Duration {
        let removal = (!self.taken.is_empty()).then_some(self.remove_at);
        let next = removal.into_iter().chain(self.missing.next_look()).min();
        next.map_or(TAIL_TICK, |at| at.saturating_duration_since(Instant::now())).min(TAIL_TICK)
    }

    fn take(&mut self, frame: Frame) -> Result<(), Trouble> {
        self.is_idle = matches!(frame, Frame::Idle(_));
        if let Some(lsn) = frame.end_lsn() {
            self.done = lsn.max(self.done);
        }
        let message = match frame {
            Frame::Idle(_) => return Ok(()),
            Frame::Message(message) => message,
        };
        match (message, &self.table) {
            (Message::Relation(relation), Some(table))
                if self.is_ours(&relation.schema, &relation.name) =>
            {
                let id = relation.id;
                self.mapping = Some((id, LogMapping::of(relation, self.config, &table.key)?));
            }
            (Message::Insert(insert), Some(_)) => {
                let Some((_, mapping)) =
                    self.mapping.as_ref().filter(|(id, _)| *id == insert.relation)
                else {
                    return Ok(());
                };
                let read = mapping.read(&insert);
                self.keys.extend(read.key);
                self.push(read.row);
            }
            (Message::Logical(message), None) if message.prefix == MESSAGE_PREFIX => {
                self.push(read_message(&message, self.config.name.as_str()));
            }
            _ => {}
        }
        Ok(())
    }

    fn push(&mut self, mut row: SourceRow) {
        row.complete(self.config);
        self.rows.push(row);
    }

    fn is_ours(&self, schema: &str, name: &str) -> bool {
        let table = &self.config.table;
        table.name == name && table.schema.as_deref().is_none_or(|own| own == schema)
    }

    /// Hands over what was read. While the store takes nothing it is tried again: the stream's own task
    /// keeps the session.
    async fn hand_over(&mut self, handover: &mut Handover) -> Result<(), Trouble> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut back_off = BACK_OFF_MIN;
        loop {
            match handover.hand_over(&self.rows).await {
                Ok(_) => break,
                Err(trouble @ Trouble::Store(_)) => self.task.in_trouble(trouble, back_off),
                Err(trouble) => return Err(trouble),
            }
            tokio::time::sleep(back_off).await;
            // A lease that ends meanwhile would end the stream too.
            back_off = (back_off * 2).min(LEASE_RENEW_AFTER);
            handover.renew().await.or_else(|trouble| match trouble {
                Trouble::Store(_) => Ok(()),
                trouble => Err(trouble),
            })?;
        }
        self.task.reading();
        self.rows.clear();
        if self.taken.is_empty() {
            self.remove_at = Instant::now() + REMOVE_EVERY;
        }
        self.taken.append(&mut self.keys);
        Ok(())
    }

    /// Removes what was taken from the table: now and then, because each removal is a transaction there.
    async fn remove_taken(&mut self) -> Result<(), Trouble> {
        let Some(table) = &self.table else { return Ok(()) };
        if self.taken.len() >= self.config.batch || Instant::now() >= self.remove_at {
            self.missing.add(table.remove(std::mem::take(&mut self.taken)).await?);
        }
        self.missing.remove_from(table).await
    }

    /// Looks whether the log tells of the table's rows, and takes from the table what it did not tell of.
    async fn look_at_table(&mut self, handover: &mut Handover) -> Result<(), Trouble> {
        let Some(table) = &self.table else { return Ok(()) };
        if self.looked_at.elapsed() >= LOOK_EVERY {
            self.looked_at = Instant::now();
            if Publication::look(&self.session.client, self.config).await? != self.publication {
                let problem = format!("publication {} or its table was changed", self.config.slot);
                return Err(Trouble::Unavailable(problem));
            }
            if self.visible.is_none() {
                self.visible = table.visible().await?;
            }
        }
        let is_read = |visible: &mut Visible| self.taken.is_empty() && visible.log_end <= self.done;
        let Some(visible) = self.visible.take_if(is_read) else { return Ok(()) };
        let mut left = visible.keys;
        left.retain(|key| !self.missing.has(key));
        let count = table.take_left(&left, self.config, handover).await?;
        if count > 0 {
            let alarm = format!(
                "{count} rows of the table were not in the log, and were taken from the table: later rows of their keys may \
                 have come before them"
            );
            self.task.context.observer.observe(&self.config.name, &Observation::Alarm(&alarm));
        }
        Ok(())
    }

    /// Notes how far all is durable, then confirms it: now and then, because each note is a write, and not before
    /// the table is rid of what was taken: the log does not tell of it again. An idle log is in less of a hurry.
    async fn confirm(&mut self, stream: &Stream, handover: &Handover) -> Result<(), Trouble> {
        let every = if self.is_idle { IDLE_CONFIRM_EVERY } else { CONFIRM_EVERY };
        if !self.taken.is_empty() || self.done == self.noted || self.noted_at.elapsed() < every {
            return Ok(());
        }
        let position = SourcePosition { system: self.system.clone(), number: self.done.as_u64() };
        let sources = &self.task.context.sources;
        sources.save_source_position(&self.config.name, handover.epoch(), position).await?;
        stream.confirm(self.done);
        (self.noted, self.noted_at) = (self.done, Instant::now());
        self.task.status.caught_up();
        Ok(())
    }

    async fn look_at_slot(&self) -> Result<(), Trouble> {
        let sql = "SELECT coalesce(pg_current_wal_lsn() - restart_lsn, 0)::bigint, safe_wal_size, wal_status = 'lost' \
                   FROM pg_replication_slots WHERE slot_name = $1";
        let found = self.session.client.query_opt(sql, &[&self.config.slot]).await?;
        let status = match found {
            None => SlotStatus { lost: true, ..SlotStatus::default() },
            Some(row) => SlotStatus {
                retained_bytes: row.try_get::<_, i64>(0)?.try_into().unwrap_or_default(),
                safe_bytes: row
                    .try_get::<_, Option<i64>>(1)?
                    .map(|bytes| bytes.try_into().unwrap_or_default()),
                lost: row.try_get::<_, Option<bool>>(2)?.unwrap_or_default(),
            },
        };
        self.task.status.lock().slot = Some(status);
        Ok(())
    }
}

/// What a failure of the log means for the source.
fn trouble(error: &Error, config: &SourceConfig) -> Trouble {
    let remedy = match error.kind() {
        ErrorKind::SlotInUse => return Trouble::Elsewhere(error.to_string()),
        ErrorKind::WalLevel => {
            "ALTER SYSTEM SET wal_level = logical; then restart the server".to_owned()
        }
        ErrorKind::Permission => {
            "ALTER ROLE … REPLICATION; railpost outbox check names the role".to_owned()
        }
        ErrorKind::Authentication => "correct the user or password in `url`".to_owned(),
        ErrorKind::LimitReached => {
            "raise max_replication_slots and max_wal_senders, then restart the server".to_owned()
        }
        ErrorKind::SlotMismatch => {
            "name another slot in `slot`, or drop the one that is there".to_owned()
        }
        ErrorKind::Version => "use PostgreSQL 14 or later, or mode = \"tail\"".to_owned(),
        ErrorKind::PublicationMissing => crate::init::publication_sql(config),
        ErrorKind::TooLarge => "delete that row at its source, or make it smaller".to_owned(),
        ErrorKind::Tls | ErrorKind::Invalid => "correct `url` or `root_certificates`".to_owned(),
        _ => return Trouble::Unavailable(format!("PostgreSQL: {error}")),
    };
    Trouble::wrong(format!("PostgreSQL: {error}"), remedy)
}
