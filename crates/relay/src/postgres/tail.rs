//! Log tailing: inserts into a table, or messages, in the order of commits.
//!
//! A position is confirmed at the server when all before it is durable here, and noted in the store
//! before that. So a slot that was confirmed further than the store knows was moved by somebody else, or
//! made again: then the table is read again, and people are told. So it is if the publication or its table
//! is another one than the position was noted for, and if the log holds what no stream gets past.
//!
//! The table is the truth: a row that it still shows after the log was read past its commit is one that
//! the log does not tell of, and is taken from the table.

use std::time::Duration;

use bytes::Bytes;
use railpost_replication::pgoutput::{Begin, Message};
use railpost_replication::{Error, ErrorKind, Frame, Lsn, Stream};
use railpost_store::SourcePosition;
use tokio::time::{Instant, timeout};

use super::connect::{Address, Session};
use super::log_rows::{LogMapping, MESSAGE_PREFIX, MissingColumn, read_message};
use super::publication::{LOOK_EVERY, Publication, publishes};
use super::slot::{begin, give_up_slot, trouble};
use super::table::{LogPlace, Missing, Table, Visible, probe};
use crate::config::{Mode, SourceConfig};
use crate::context::Observation;
use crate::handover::Handover;
use crate::limits::{
    BACK_OFF_MIN, CONFIRM_EVERY, HAND_OVER_BYTES, IDLE_CONFIRM_EVERY, LEASE_RENEW_AFTER,
    REMOVE_EVERY, TAIL_TICK,
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
    let (mut stream, from) = begin(task, handover, &target, table.as_ref(), &publication).await?;
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
        begin: None,
        rows: Vec::new(),
        keys: Vec::new(),
        bytes: 0,
        large: Vec::new(),
        ends: vec![(0, from.position)],
        missing: Missing::default(),
        is_idle: true,
        taken: Vec::new(),
        remove_at: Instant::now(),
        done: from.position,
        system: from.system,
        noted: from.position,
        noted_at: Instant::now(),
    };
    let Err(ended) = tail.follow(&mut stream, handover).await else { return Ok(()) };
    let why = tail.why_to_give_up(ended).await?;
    stream.stop().await;
    give_up_slot(task, &target, &why).await?;
    Err(Trouble::Unavailable(why))
}

/// Why a stream ended.
enum Ended {
    Trouble(Trouble),
    /// The log holds changes from a time when there was no publication: no stream gets past them.
    PublicationMissing(Error),
    /// The log holds rows from a time when the table lacked a column.
    ColumnMissing(MissingColumn),
    /// The log holds a row or a message that is too large for a stream.
    TooLarge(Error),
}

impl From<Trouble> for Ended {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
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
    /// The transaction that is being read.
    begin: Option<Begin>,
    rows: Vec<SourceRow>,
    /// What names each of the rows in its table.
    keys: Vec<Option<String>>,
    /// How many bytes the payloads of the rows have.
    bytes: usize,
    /// The rows that are too large to be kept, by their place, and what names them.
    large: Vec<(usize, LogPlace)>,
    /// Where transactions end in the log, each with how many of the rows are before it. The first has none.
    ends: Vec<(usize, Lsn)>,
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
    async fn follow(&mut self, stream: &mut Stream, handover: &mut Handover) -> Result<(), Ended> {
        let mut looked_at = Instant::now();
        loop {
            let mut taken = Ok(());
            tokio::select! {
                frame = timeout(self.wait(), stream.next()) => {
                    if let Ok(frame) = frame {
                        taken = self.take(frame.map_err(|error| self.ended(error))?);
                    }
                }
                () = self.task.wake.notified() => {
                    handover.renew().await?;
                    continue;
                }
            };
            while taken.is_ok()
                && self.rows.len() < self.config.batch
                && self.bytes < HAND_OVER_BYTES
                && let Some(frame) = stream.try_next()
            {
                taken = self.take(frame);
            }
            handover.keep().await?;
            self.hand_over(handover).await?;
            if let Err(ended) = taken {
                self.keep_first(0, handover).await?;
                return Err(ended);
            }
            self.remove_taken().await?;
            self.look_at_table(handover).await?;
            self.confirm(stream, handover).await?;
            if looked_at.elapsed() >= IDLE_CONFIRM_EVERY {
                looked_at = Instant::now();
                self.look_at_slot().await?;
            }
        }
    }

    fn ended(&self, error: Error) -> Ended {
        match error.kind() {
            ErrorKind::PublicationMissing => Ended::PublicationMissing(error),
            ErrorKind::TooLarge => Ended::TooLarge(error),
            _ => Ended::Trouble(trouble(&error, self.config)),
        }
    }

    /// Why the slot is of no more use although the source is right again: the log cannot be read on, and the table
    /// has what is in it. Fails with what is wrong if it is not right yet.
    async fn why_to_give_up(&self, ended: Ended) -> Result<String, Trouble> {
        let (client, config) = (&self.session.client, self.config);
        match ended {
            Ended::Trouble(trouble) => Err(trouble),
            Ended::PublicationMissing(error) => match Publication::look(client, config).await {
                Ok(_) => Ok(format!("the publication was away for a while ({error})")),
                Err(_) => Err(trouble(&error, config)),
            },
            Ended::ColumnMissing(column) => {
                let trouble = column.trouble(config);
                probe(client, config).await.map_err(|_| trouble.clone())?;
                publishes(client, config, &column.0).await?;
                Ok(format!("{trouble}, and has it now"))
            }
            Ended::TooLarge(error) => {
                let Some(table) = &self.table else { return Err(trouble(&error, config)) };
                match table.find_too_large(config).await? {
                    Some(trouble) => Err(trouble),
                    None => Ok(format!("the log has a row that the table does not have ({error})")),
                }
            }
        }
    }

    /// How long to wait for the log.
    fn wait(&self) -> Duration {
        let removal = (!self.taken.is_empty()).then_some(self.remove_at);
        let next = removal.into_iter().chain(self.missing.next_look()).min();
        next.map_or(TAIL_TICK, |at| at.saturating_duration_since(Instant::now())).min(TAIL_TICK)
    }

    fn take(&mut self, frame: Frame) -> Result<(), Ended> {
        self.is_idle = matches!(frame, Frame::Idle(_));
        // A message outside of a transaction is before its own end.
        let end = frame.end_lsn();
        let taken = self.take_message(frame);
        if let Some(lsn) = end {
            self.done = lsn.max(self.done);
            self.ends.push((self.rows.len(), self.done));
        }
        taken
    }

    fn take_message(&mut self, frame: Frame) -> Result<(), Ended> {
        let message = match frame {
            Frame::Idle(_) => return Ok(()),
            Frame::Message(message) => message,
        };
        match (message, &self.table) {
            (Message::Begin(begin), _) => self.begin = Some(begin),
            (Message::Relation(relation), Some(table))
                if self.is_ours(&relation.schema, &relation.name) =>
            {
                let id = relation.id;
                let mapping = LogMapping::of(relation, self.config, &table.key);
                self.mapping = Some((id, mapping.map_err(Ended::ColumnMissing)?));
            }
            (Message::Insert(insert), Some(_)) => {
                let Some((_, mapping)) =
                    self.mapping.as_ref().filter(|(id, _)| *id == insert.relation)
                else {
                    return Ok(());
                };
                let read = mapping.read(&insert);
                self.push(read.row, read.key);
            }
            (Message::Logical(message), None) if message.prefix == MESSAGE_PREFIX => {
                self.push(read_message(&message, self.config.name.as_str()), None);
            }
            _ => {}
        }
        Ok(())
    }

    fn push(&mut self, mut row: SourceRow, key: Option<String>) {
        row.complete(self.config);
        if row.is_too_large() {
            row.leave_out();
            let place = key.clone().zip(self.begin).map(|(key, begin)| LogPlace { key, begin });
            self.large.extend(place.map(|place| (self.rows.len(), place)));
        }
        self.bytes += row.payload.as_ref().map_or(0, Bytes::len);
        self.rows.push(row);
        self.keys.push(key);
    }

    fn is_ours(&self, schema: &str, name: &str) -> bool {
        let table = &self.config.table;
        table.name == name && table.schema.as_deref().is_none_or(|own| own == schema)
    }

    /// Hands over what was read, up to a row that is too large.
    async fn hand_over(&mut self, handover: &mut Handover) -> Result<(), Trouble> {
        let too_large = self.look_at_large().await?;
        let end = too_large.as_ref().map_or(self.rows.len(), |(index, _)| *index);
        if end > 0 {
            let handed = self.hand_over_first(end, handover).await;
            if let Err(Trouble::Stopped { before, .. }) = &handed {
                self.keep_first(*before, handover).await?;
            }
            handed?;
        }
        if let Some((_, trouble)) = too_large {
            self.task.status.wait(&self.rows[end..], end);
            self.keep_first(end, handover).await?;
            return Err(trouble);
        }
        if end > 0 {
            self.task.reading();
            if self.taken.is_empty() {
                self.remove_at = Instant::now() + REMOVE_EVERY;
            }
            self.taken.extend(self.keys.drain(..).flatten());
            self.rows.clear();
            self.bytes = 0;
        }
        self.ends = vec![(0, self.done)];
        Ok(())
    }

    /// Looks for rows that are too large in the table. One that is smaller there is taken as it is there; one that is
    /// gone is parked without its payload. Answers the first that is still too large.
    async fn look_at_large(&mut self) -> Result<Option<(usize, Trouble)>, Trouble> {
        let Some(table) = &self.table else { return Ok(None) };
        for (index, place) in std::mem::take(&mut self.large) {
            match table.find(&place, self.config).await {
                Ok(Some(row)) => self.rows[index] = row,
                Ok(None) => {}
                Err(trouble @ Trouble::Wrong { .. }) => return Ok(Some((index, trouble))),
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(None)
    }

    /// Hands over the first rows. While the store takes nothing it is tried again: the stream's own task
    /// keeps the session.
    async fn hand_over_first(&self, count: usize, handover: &mut Handover) -> Result<(), Trouble> {
        let mut back_off = BACK_OFF_MIN;
        loop {
            match handover.hand_over(&self.rows[..count]).await {
                Ok(_) => return Ok(()),
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
    }

    /// The stream ends behind the first rows, which are durable here: removes them from the table, and notes the end
    /// of the last transaction that has no other row.
    async fn keep_first(&mut self, count: usize, handover: &Handover) -> Result<(), Trouble> {
        self.taken.extend(self.keys.drain(..count).flatten());
        if let Some(table) = &self.table {
            table.remove(std::mem::take(&mut self.taken)).await?;
        }
        let ends = self.ends.iter().filter(|(rows, _)| *rows <= count);
        self.done = ends.map(|(_, end)| *end).max().unwrap_or(self.noted);
        self.note(handover).await
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
    /// the table is rid of what was taken: the log does not tell of it again. An idle log is in less of a hurry, unless
    /// the server waits for it.
    async fn confirm(&mut self, stream: &Stream, handover: &Handover) -> Result<(), Trouble> {
        let every = match self.is_idle {
            _ if stream.is_awaited() => Duration::ZERO,
            true => IDLE_CONFIRM_EVERY,
            false => CONFIRM_EVERY,
        };
        if !self.taken.is_empty() || self.done == self.noted || self.noted_at.elapsed() < every {
            return Ok(());
        }
        self.note(handover).await?;
        stream.confirm(self.done);
        self.task.status.caught_up();
        Ok(())
    }

    async fn note(&mut self, handover: &Handover) -> Result<(), Trouble> {
        let position = SourcePosition { system: self.system.clone(), number: self.done.as_u64() };
        let sources = &self.task.context.sources;
        sources.save_source_position(&self.config.name, handover.epoch(), position).await?;
        (self.noted, self.noted_at) = (self.done, Instant::now());
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
