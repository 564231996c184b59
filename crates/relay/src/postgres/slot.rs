//! Where a stream of the log begins: the slot, and whether the table has to be read.

use railpost_replication::{
    Connection, Error, ErrorKind, Lsn, NewSlot, Start, Stream, SystemIdentity, Target, WalStatus,
};
use railpost_store::SourcePosition;
use tokio::time::timeout;

use super::publication::Publication;
use super::table::Table;
use crate::config::{Mode, SourceConfig};
use crate::context::Observation;
use crate::handover::Handover;
use crate::limits::{BACK_OFF_MIN, SLOT_WAIT_MAX};
use crate::run::SourceTask;
use crate::trouble::Trouble;

/// Where a stream began.
pub(super) struct Began {
    /// What the position belongs to.
    pub(super) system: String,
    pub(super) position: Lsn,
}

/// Makes sure of the slot, starts the stream, and reads the table if the log cannot tell all.
pub(super) async fn begin(
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

/// Drops a slot whose log cannot be read on: the next try makes a new one and reads the table. `why` is what people
/// are told.
pub(super) async fn give_up_slot(
    task: &SourceTask,
    target: &Target,
    why: &str,
) -> Result<(), Trouble> {
    let config = &*task.config;
    let failed = |error: Error| trouble(&error, config);
    let alarm = format!("{why}: slot {} is made again, and the table is read", config.slot);
    task.context.observer.observe(&config.name, &Observation::Alarm(&alarm));
    let mut connection = Connection::connect(target).await.map_err(failed)?;
    let dropping = async {
        loop {
            match connection.drop_slot(&config.slot).await {
                // The server may not have noticed yet that its session is over.
                Err(error) if error.kind() == ErrorKind::SlotInUse => {
                    tokio::time::sleep(BACK_OFF_MIN).await;
                }
                dropped => return dropped.map_err(failed),
            }
        }
    };
    let dropped = timeout(SLOT_WAIT_MAX, dropping).await;
    dropped.unwrap_or_else(|_| Err(Trouble::Unavailable(format!("slot {} is in use", config.slot))))
}

/// What a failure of the log means for the source.
pub(super) fn trouble(error: &Error, config: &SourceConfig) -> Trouble {
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
        // A row has its table to be named by: this is a message.
        ErrorKind::TooLarge => format!(
            "SELECT pg_replication_slot_advance('{}', pg_current_wal_lsn()); -- loses all messages up to there; again if \
             the slot is in use",
            config.slot
        ),
        ErrorKind::Tls | ErrorKind::Invalid => "correct `url` or `root_certificates`".to_owned(),
        _ => return Trouble::Unavailable(format!("PostgreSQL: {error}")),
    };
    Trouble::wrong(format!("PostgreSQL: {error}"), remedy)
}
