//! Sources: leases, positions and parked rows.

use bytes::Bytes;
use railpost_engine::Span;
use railpost_store::limits::{PARKED_ROW_LEN_MAX, PARKED_ROWS_MAX};
use railpost_store::{
    AuditQuery, Epoch, Hold, PageRequest, ParkBatch, ParkOutcome, ParkedAction, ParkedCommand,
    ParkedHolds, ParkedQuery, ParkedRow, ParkedSummary, ParkedTarget, Period, ReleaseStep, Result,
    RowRefusal, RowToPark, SourceFields, SourceLease, SourceName, SourcePosition, StoreError,
    is_lease_lost,
};

use super::world::World;

const LONG: Span = Span::from_hours(1);

fn shop() -> SourceName {
    "shop".parse().unwrap()
}

async fn lease(world: &World, holder: &str, length: Span) -> Option<Epoch> {
    match world.store.lease_source(&shop(), holder, length).await.unwrap() {
        SourceLease::Held { epoch, .. } => Some(epoch),
        SourceLease::Elsewhere { .. } => None,
    }
}

fn refusal(reason: &str) -> RowRefusal {
    RowRefusal { code: "type".to_owned(), reason: reason.to_owned() }
}

fn row(id: &str, hold: Option<u8>, refused: bool) -> RowToPark {
    let fields = SourceFields {
        id: Some(id.to_owned()),
        tenant: Some("acme".to_owned()),
        event_type: Some("not a type\0".to_owned()),
        key: hold.map(|hold| format!("k{hold}")),
        content_type: Some("application/json".to_owned()),
        schema_version: Some(-1),
        time: Some(i64::MAX),
        traceparent: None,
    };
    RowToPark {
        hold: hold.map(|byte| Hold([byte; 16])),
        refusal: refused.then(|| refusal("a space\0")),
        fields,
        payload: Some(Bytes::from(format!("payload of {id}\0"))),
    }
}

async fn version(world: &World) -> u64 {
    world.store.parked_holds(&shop()).await.unwrap().summary.version
}

async fn park(world: &World, epoch: Epoch, rows: Vec<RowToPark>) -> Result<ParkOutcome> {
    let version = version(world).await;
    world.store.park(ParkBatch { source: shop(), epoch, version, rows }).await
}

async fn parked(world: &World) -> Vec<ParkedRow> {
    let query = ParkedQuery::of(shop(), PageRequest::first(100));
    world.store.parked_rows(query).await.unwrap().items
}

fn ids(rows: &[ParkedRow]) -> Vec<&str> {
    rows.iter().map(|row| row.fields.id.as_deref().unwrap()).collect()
}

/// A reader with three rows of one key, two of another and one without: `a1` to `a3`, `b1`, `b2` and
/// `c`.
async fn six_parked(world: &World) -> Epoch {
    let epoch = lease(world, "me", LONG).await.unwrap();
    let rows = vec![
        row("a1", Some(1), true),
        row("b1", Some(2), true),
        row("a2", Some(1), false),
        row("c", None, true),
        row("b2", Some(2), false),
        row("a3", Some(1), false),
    ];
    assert_eq!(park(world, epoch, rows).await, Ok(ParkOutcome::Parked));
    epoch
}

async fn command(world: &World, action: ParkedAction, id: &str) -> Result<u64> {
    let row = parked(world).await.into_iter().find(|row| row.fields.id.as_deref() == Some(id));
    let target = ParkedTarget::Head(row.map_or(u64::MAX, |row| row.number));
    world.store.command_parked(ParkedCommand { source: shop(), action, target, audit: None }).await
}

async fn released(world: &World) -> Vec<(u64, String)> {
    let rows = world.store.released_rows(&shop(), 100).await.unwrap();
    rows.into_iter().map(|row| (row.row.number, row.row.fields.id.unwrap())).collect()
}

async fn released_ids(world: &World) -> Vec<String> {
    released(world).await.into_iter().map(|(_, id)| id).collect()
}

async fn end_release(world: &World, epoch: Epoch, accepted: Vec<u64>) {
    let step = ReleaseStep { source: shop(), epoch, accepted, refused: None };
    world.store.end_release(step).await.unwrap();
}

pub(super) async fn one_holder_has_the_lease_of_a_source(world: World) {
    let first = lease(&world, "a", LONG).await.unwrap();
    assert_eq!(lease(&world, "a", LONG).await, Some(first));
    let elsewhere = SourceLease::Elsewhere { holder: "a".to_owned() };
    assert_eq!(world.store.lease_source(&shop(), "b", LONG).await, Ok(elsewhere));
    world.store.release_source(&shop(), Epoch(first.0 + 1)).await.unwrap();
    assert_eq!(lease(&world, "b", LONG).await, None);
    world.store.release_source(&shop(), first).await.unwrap();
    let second = lease(&world, "b", Span::ZERO).await.unwrap();
    assert!(second > first);
    assert!(lease(&world, "a", LONG).await.unwrap() > second);
}

pub(super) async fn who_lost_the_lease_writes_nothing(world: World) {
    let old = lease(&world, "a", Span::ZERO).await.unwrap();
    let new = lease(&world, "b", LONG).await.unwrap();
    let position = SourcePosition { system: "7".to_owned(), number: 1 };
    let saved = world.store.save_source_position(&shop(), old, position.clone()).await;
    assert!(saved.is_err_and(|error| is_lease_lost(&error)));
    let parked_by_old = park(&world, old, vec![row("a1", None, true)]).await;
    assert!(parked_by_old.is_err_and(|error| is_lease_lost(&error)));
    let step = ReleaseStep { source: shop(), epoch: old, accepted: vec![], refused: None };
    let ended = world.store.end_release(step).await;
    assert!(ended.is_err_and(|error| is_lease_lost(&error)));
    assert_eq!(world.store.source_position(&shop()).await, Ok(None));
    assert_eq!(parked(&world).await, []);
    assert_eq!(world.store.save_source_position(&shop(), new, position).await, Ok(()));
}

pub(super) async fn a_position_reads_back(world: World) {
    let epoch = lease(&world, "a", LONG).await.unwrap();
    for number in [7, i64::MAX as u64] {
        let position = SourcePosition { system: "system 1".to_owned(), number };
        world.store.save_source_position(&shop(), epoch, position.clone()).await.unwrap();
        assert_eq!(world.store.source_position(&shop()).await, Ok(Some(position)));
    }
    let far = SourcePosition { system: String::new(), number: u64::MAX };
    let refused = world.store.save_source_position(&shop(), epoch, far).await;
    assert!(matches!(refused, Err(StoreError::Invalid { field, .. }) if field == "number"));
    assert_eq!(world.store.known_sources().await, Ok(vec![shop()]));
    assert_eq!(world.store.forget_source(&shop()).await, Ok(()));
    assert_eq!(world.store.source_position(&shop()).await, Ok(None));
}

pub(super) async fn parked_rows_read_back_in_order(world: World) {
    six_parked(&world).await;
    let rows = parked(&world).await;
    assert_eq!(ids(&rows), ["a1", "b1", "a2", "c", "b2", "a3"]);
    let first = row("a1", Some(1), true);
    assert_eq!((&rows[0].fields, &rows[0].refusal), (&first.fields, &first.refusal));
    assert_eq!((rows[0].hold, rows[0].released), (first.hold, false));
    assert_eq!(rows[2].refusal, None);
    let third = world.store.parked_row(&shop(), rows[2].number).await.unwrap();
    assert_eq!(third.as_ref(), Some(&rows[2]));
    assert_eq!(world.store.parked_row(&shop(), rows[5].number + 1).await, Ok(None));
    assert_eq!(world.store.parked_row(&"other".parse().unwrap(), rows[2].number).await, Ok(None));
    let payload = world.store.parked_payload(&shop(), rows[0].number).await.unwrap();
    assert_eq!(payload, first.payload);
    let ParkedHolds { summary, holds } = world.store.parked_holds(&shop()).await.unwrap();
    assert_eq!(holds, [Hold([1; 16]), Hold([2; 16])]);
    let bytes = rows.iter().map(|row| row.bytes).sum();
    assert_eq!(summary, ParkedSummary { version: 0, rows: 6, bytes });
    let page = |page| ParkedQuery { refused_only: true, ..ParkedQuery::of(shop(), page) };
    let first = world.store.parked_rows(page(PageRequest::first(2))).await.unwrap();
    let rest = page(PageRequest::after(2, first.next.clone().unwrap()));
    let rest = world.store.parked_rows(rest).await.unwrap();
    assert_eq!((ids(&first.items), ids(&rest.items)), (vec!["a1", "b1"], vec!["c"]));
    let other: SourceName = "other".parse().unwrap();
    assert_eq!(world.store.parked_holds(&other).await, Ok(ParkedHolds::default()));
}

pub(super) async fn rows_judged_by_old_holds_are_not_parked(world: World) {
    let epoch = six_parked(&world).await;
    assert_eq!(command(&world, ParkedAction::Discard, "b1").await, Ok(2));
    let rows = vec![row("b3", Some(2), false)];
    let batch = ParkBatch { source: shop(), epoch, version: 0, rows };
    assert_eq!(world.store.park(batch.clone()).await, Ok(ParkOutcome::Changed));
    let version = version(&world).await;
    assert!(version > 0);
    let parked_again = world.store.park(ParkBatch { version, ..batch }).await;
    assert_eq!(parked_again, Ok(ParkOutcome::Parked));
}

pub(super) async fn a_row_that_is_parked_already_stays_where_it_is(world: World) {
    let epoch = six_parked(&world).await;
    let before = world.store.parked_holds(&shop()).await.unwrap();
    let again = vec![row("a2", Some(1), false), row("c", None, true)];
    assert_eq!(park(&world, epoch, again).await, Ok(ParkOutcome::Parked));
    assert_eq!(ids(&parked(&world).await), ["a1", "b1", "a2", "c", "b2", "a3"]);
    assert_eq!(world.store.parked_holds(&shop()).await, Ok(before));
}

pub(super) async fn a_source_has_a_bounded_number_of_parked_rows(world: World) {
    let epoch = lease(&world, "a", LONG).await.unwrap();
    let large =
        RowToPark { payload: Some(vec![7; PARKED_ROW_LEN_MAX].into()), ..row("a", None, true) };
    let refused = park(&world, epoch, vec![large.clone()]).await;
    assert!(
        matches!(refused, Err(StoreError::Invalid { field, .. }) if field == "rows[0].row (bytes)")
    );
    let large = RowToPark { payload: Some(vec![7; PARKED_ROW_LEN_MAX - 1_000].into()), ..large };
    for n in 0..16 {
        let fields = row(&n.to_string(), None, true).fields;
        let large = RowToPark { fields, ..large.clone() };
        assert_eq!(park(&world, epoch, vec![large]).await, Ok(ParkOutcome::Parked));
    }
    let full = park(&world, epoch, vec![large]).await;
    assert!(matches!(full, Ok(ParkOutcome::Full(ParkedSummary { rows: 16, .. }))), "{full:?}");
    assert_eq!(PARKED_ROWS_MAX, 100_000);
}

pub(super) async fn a_retried_row_brings_those_behind_it(world: World) {
    let epoch = six_parked(&world).await;
    assert_eq!(released_ids(&world).await, Vec::<String>::new());
    assert_eq!(command(&world, ParkedAction::Retry, "a1").await, Ok(1));
    let rows = released(&world).await;
    assert_eq!(released_ids(&world).await, ["a1", "a2", "a3"]);
    // The reader stops after the first: what is left is still to be handed over.
    end_release(&world, epoch, vec![rows[0].0]).await;
    assert_eq!(released_ids(&world).await, ["a2", "a3"]);
    let again = Some((rows[1].0, refusal("another reason")));
    let step = ReleaseStep { source: shop(), epoch, accepted: vec![], refused: again };
    world.store.end_release(step).await.unwrap();
    assert_eq!(released_ids(&world).await, Vec::<String>::new());
    let left = parked(&world).await;
    assert_eq!(ids(&left), ["b1", "a2", "c", "b2", "a3"]);
    assert_eq!(left[1].refusal, Some(refusal("another reason")));
    let all = ParkedQuery::of(shop(), PageRequest::first(9));
    let query = ParkedQuery { refused_only: true, ..all.clone() };
    let heads = world.store.parked_rows(query).await.unwrap().items;
    assert_eq!(ids(&heads), ["b1", "a2", "c"]);
    let tenant = left[0].fields.tenant.clone();
    for (code, tenant, expected) in [
        (None, tenant.clone(), vec!["b1", "a2", "c", "b2", "a3"]),
        (None, Some("another".to_owned()), vec![]),
        (left[0].refusal.clone(), tenant, vec!["b1", "a2", "c"]),
        (Some(RowRefusal { code: "another".to_owned(), ..refusal("") }), None, vec![]),
    ] {
        let code = code.map(|refusal| refusal.code);
        let query = ParkedQuery { code, tenant, ..all.clone() };
        let rows = world.store.parked_rows(query.clone()).await.unwrap().items;
        assert_eq!(ids(&rows), expected, "{query:?}");
    }
}

pub(super) async fn a_skipped_row_releases_those_behind_it(world: World) {
    let epoch = six_parked(&world).await;
    assert_eq!(command(&world, ParkedAction::Skip, "a1").await, Ok(1));
    let rows = released(&world).await;
    assert_eq!(released_ids(&world).await, ["a2", "a3"]);
    end_release(&world, epoch, rows.iter().map(|(number, _)| *number).collect()).await;
    assert_eq!(ids(&parked(&world).await), ["b1", "c", "b2"]);
    assert_eq!(command(&world, ParkedAction::Skip, "c").await, Ok(1));
    assert_eq!(released_ids(&world).await, Vec::<String>::new());
    let holds = world.store.parked_holds(&shop()).await.unwrap();
    assert_eq!((holds.holds, holds.summary.rows), (vec![Hold([2; 16])], 2));
}

pub(super) async fn a_command_names_a_head(world: World) {
    six_parked(&world).await;
    for id in ["a2", "nothing"] {
        for action in [ParkedAction::Retry, ParkedAction::Skip, ParkedAction::Discard] {
            let refused = command(&world, action, id).await;
            assert!(matches!(refused, Err(StoreError::NotFound(_))), "{id}: {refused:?}");
        }
    }
    assert_eq!(parked(&world).await.len(), 6);
}

pub(super) async fn all_heads_can_be_commanded_at_once(world: World) {
    let epoch = six_parked(&world).await;
    let (source, target) = (shop(), ParkedTarget::AllHeads);
    let audit = Some(world.audit_entry("shop"));
    let retry = ParkedCommand { source, action: ParkedAction::Retry, target, audit: audit.clone() };
    assert_eq!(world.store.command_parked(retry.clone()).await, Ok(3));
    assert_eq!(world.store.command_parked(ParkedCommand { audit: None, ..retry }).await, Ok(0));
    let trail = AuditQuery {
        tenant: None,
        target: Some("shop".to_owned()),
        at: Period::default(),
        page: PageRequest::first(9),
    };
    assert_eq!(world.store.audit(trail).await.unwrap().items, Vec::from_iter(audit));
    for expected in [vec!["a1", "a2", "a3"], vec!["b1", "b2"], vec!["c"]] {
        let rows = released(&world).await;
        assert_eq!(rows.iter().map(|(_, id)| id.as_str()).collect::<Vec<_>>(), expected);
        end_release(&world, epoch, rows.iter().map(|(number, _)| *number).collect()).await;
    }
    assert_eq!(world.store.parked_holds(&shop()).await.unwrap().summary.bytes, 0);
}

pub(super) async fn a_source_with_parked_rows_is_not_forgotten(world: World) {
    six_parked(&world).await;
    let refused = world.store.forget_source(&shop()).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    assert_eq!(world.store.known_sources().await, Ok(vec![shop()]));
}

pub(super) async fn parked_rows_are_erased_with_their_tenant(world: World) {
    six_parked(&world).await;
    let before = version(&world).await;
    world.erase(&world.tenant).await;
    assert_eq!(parked(&world).await, []);
    let summary = world.store.parked_holds(&shop()).await.unwrap().summary;
    assert_eq!((summary.rows, summary.bytes), (0, 0));
    assert!(summary.version > before);
}

pub(super) async fn a_backup_holds_parked_rows_and_positions(world: World) {
    let epoch = six_parked(&world).await;
    let position = SourcePosition { system: "7".to_owned(), number: 1 };
    world.store.save_source_position(&shop(), epoch, position.clone()).await.unwrap();
    let rows = parked(&world).await;
    let path = world.new_path();
    world.store.backup(&path).await.unwrap();
    let restored = world.restore(&path, 1).await.unwrap();
    let world = world.with_store(restored);
    assert_eq!(parked(&world).await, rows);
    assert_eq!(world.store.source_position(&shop()).await, Ok(Some(position)));
    world.store.release_source(&shop(), epoch).await.unwrap();
    let epoch = lease(&world, "me", LONG).await.unwrap();
    assert_eq!(park(&world, epoch, vec![row("d", None, true)]).await, Ok(ParkOutcome::Parked));
    assert_eq!(ids(&parked(&world).await).last(), Some(&"d"));
}
