//! Alerts and silences.

use railpost_engine::Timestamp;
use railpost_store::limits::{ALERT_DETAILS_LEN_MAX, ALERTS_BATCH_MAX, SILENCES_MAX};
use railpost_store::{
    Alert, AlertQuery, PageRequest, Period, PruneStep, Severity, Silence, StoreError,
    TenantSettings, Told,
};
use railpost_wire::{AlertId, SilenceId, TenantId};
use serde_json::json;

use super::world::{START, World};

/// An open alert of the server that fires a second later than the one before.
fn fired(world: &World) -> Alert {
    let at = world.later(1_000);
    Alert {
        id: AlertId::from_u128(world.unique()),
        rule: "breaker_open".to_owned(),
        tenant: None,
        subject: "ep_1".to_owned(),
        severity: Severity::Warning,
        summary: "Breaker of https://example.com opened: it’s down.".to_owned(),
        details: json!({"failed": 12, "text": "b\u{0}"}),
        fired_at: at,
        last_held_at: at,
        resolved_at: None,
        told: Told::Nothing,
    }
}

fn resolved(alert: &Alert, at: Timestamp) -> Alert {
    Alert { resolved_at: Some(at), told: Told::Resolved, ..alert.clone() }
}

async fn save(world: &World, alerts: &[&Alert]) {
    let alerts = alerts.iter().map(|alert| (*alert).clone()).collect();
    world.store.save_alerts(alerts).await.unwrap();
}

async fn listed(world: &World, query: AlertQuery) -> Vec<AlertId> {
    let alerts = world.store.alerts(query).await.unwrap().items;
    alerts.iter().map(|alert| alert.id).collect()
}

fn all() -> AlertQuery {
    AlertQuery::all(PageRequest::first(100))
}

fn silence(world: &World, until: Timestamp) -> Silence {
    Silence {
        id: SilenceId::from_u128(world.unique()),
        rule: Some("breaker_open".to_owned()),
        tenant: Some(world.tenant.clone()),
        subject: Some("ep_1".to_owned()),
        from: START,
        until,
        by: "key_1".to_owned(),
        reason: "maintenance".to_owned(),
    }
}

async fn save_silence(world: &World, silence: &Silence) -> Result<(), StoreError> {
    let audit = world.audit_entry(&silence.id.to_string());
    world.store.save_silence(silence.clone(), audit).await
}

pub(super) async fn an_alert_reads_back_in_every_detail(world: World) {
    let mut alerts = Vec::new();
    for (severity, told) in
        Severity::ALL.into_iter().zip([Told::Nothing, Told::Fired, Told::Resolved, Told::Withheld])
    {
        let alert = Alert { severity, told, ..fired(&world) };
        alerts.push(Alert { resolved_at: Some(world.later(1)), ..alert.clone() });
        alerts.push(Alert { tenant: Some(world.tenant.clone()), id: fired(&world).id, ..alert });
    }
    save(&world, &alerts.iter().collect::<Vec<_>>()).await;
    for alert in alerts {
        assert_eq!(world.store.alert(alert.id).await, Ok(Some(alert)));
    }
    assert_eq!(world.store.alert(AlertId::from_u128(u128::MAX)).await, Ok(None));
}

pub(super) async fn an_alert_is_open_until_all_of_it_is_told(world: World) {
    let end = Some(world.later(1));
    let mut open = Vec::new();
    for (resolved_at, told, settled) in [
        (None, Told::Nothing, false),
        (None, Told::Fired, false),
        (end, Told::Nothing, false),
        (end, Told::Fired, false),
        (end, Told::Resolved, true),
        (end, Told::Withheld, true),
    ] {
        let alert = Alert { resolved_at, told, ..fired(&world) };
        save(&world, &[&alert]).await;
        assert_eq!(alert.is_settled(), settled, "{alert:?}");
        open.extend((!settled).then_some(alert));
    }
    assert_eq!(world.store.open_alerts().await, Ok(open));
}

pub(super) async fn alerts_are_saved_in_place_of_what_was_kept(world: World) {
    let (alert, other) = (fired(&world), fired(&world));
    save(&world, &[&alert, &other]).await;
    let told = Alert { told: Told::Fired, summary: "twice".to_owned(), ..alert.clone() };
    save(&world, &[&told]).await;
    assert_eq!(world.store.open_alerts().await, Ok(vec![told.clone(), other.clone()]));
    let end = resolved(&told, world.later(1));
    save(&world, &[&end, &end]).await;
    assert_eq!(world.store.open_alerts().await, Ok(vec![other]));
    assert_eq!(world.store.alert(alert.id).await, Ok(Some(end)));
}

pub(super) async fn alerts_list_the_latest_first_by_what_is_asked_for(world: World) {
    let other = world.add_tenant("other", TenantSettings::default()).await;
    let first = fired(&world);
    let of_tenant = Alert { tenant: Some(world.tenant.clone()), ..fired(&world) };
    let of_other = Alert { tenant: Some(other), rule: "lane_held".to_owned(), ..fired(&world) };
    let over = resolved(&first, of_tenant.fired_at);
    save(&world, &[&over, &of_tenant, &of_other]).await;
    let tenant = || Some(world.tenant.clone());
    let between =
        |from: Timestamp, before: Timestamp| Period { from: Some(from), before: Some(before) };
    let after = |at: Timestamp| Timestamp::from_millis(at.as_millis() + 1);
    for (query, expected) in [
        (all(), vec![&of_other, &of_tenant, &over]),
        (AlertQuery { tenant: tenant(), ..all() }, vec![&of_tenant]),
        (AlertQuery { tenant: tenant(), with_servers_own: true, ..all() }, vec![&of_tenant, &over]),
        (AlertQuery { rule: Some("lane_held".to_owned()), ..all() }, vec![&of_other]),
        (AlertQuery { open: Some(true), ..all() }, vec![&of_other, &of_tenant]),
        (AlertQuery { open: Some(false), ..all() }, vec![&over]),
        (AlertQuery { overlapping: between(START, first.fired_at), ..all() }, vec![]),
        (
            AlertQuery { overlapping: between(of_tenant.fired_at, of_other.fired_at), ..all() },
            vec![&of_tenant, &over],
        ),
        (
            AlertQuery {
                overlapping: between(after(of_tenant.fired_at), after(of_other.fired_at)),
                ..all()
            },
            vec![&of_other, &of_tenant],
        ),
    ] {
        let expected: Vec<AlertId> = expected.iter().map(|alert| alert.id).collect();
        assert_eq!(listed(&world, query.clone()).await, expected, "{query:?}");
    }
    let page = world.store.alerts(AlertQuery::all(PageRequest::first(2))).await.unwrap();
    assert_eq!(page.items, [of_other, of_tenant]);
    let rest = AlertQuery::all(PageRequest::after(2, page.next.unwrap()));
    assert_eq!(listed(&world, rest).await, [over.id]);
}

pub(super) async fn alerts_of_what_is_not_there_are_left_out(world: World) {
    let gone: TenantId = "gone".parse().unwrap();
    let (alert, lost) = (fired(&world), Alert { tenant: Some(gone), ..fired(&world) });
    save(&world, &[&lost, &alert]).await;
    assert_eq!(world.store.open_alerts().await, Ok(vec![alert]));
    assert_eq!(world.store.alert(lost.id).await, Ok(None));
}

pub(super) async fn a_bad_alert_names_the_field(world: World) {
    let good = fired(&world);
    let long = json!({ "text": "x".repeat(ALERT_DETAILS_LEN_MAX) });
    for (named, alert) in [
        ("rule", Alert { rule: "a\0b".to_owned(), ..good.clone() }),
        ("subject (bytes)", Alert { subject: "x".repeat(9_999), ..good.clone() }),
        ("summary (bytes)", Alert { summary: "x".repeat(9_999), ..good.clone() }),
        ("details (bytes)", Alert { details: long, ..good.clone() }),
    ] {
        let refused = world.store.save_alerts(vec![good.clone(), alert]).await;
        assert!(
            matches!(&refused, Err(StoreError::Invalid { field, .. }) if field == named),
            "{refused:?}"
        );
    }
    let many = world.store.save_alerts(vec![good; ALERTS_BATCH_MAX + 1]).await;
    assert!(matches!(many, Err(StoreError::Invalid { .. })), "{many:?}");
    assert_eq!(listed(&world, all()).await, []);
}

pub(super) async fn a_silence_is_kept_until_it_ends(world: World) {
    let end = world.later(1_000_000);
    let everything = Silence {
        rule: None,
        tenant: None,
        subject: None,
        ..silence(&world, Timestamp::from_millis(end.as_millis() + 100_000))
    };
    let short = silence(&world, Timestamp::from_millis(end.as_millis() + 50_000));
    save_silence(&world, &everything).await.unwrap();
    save_silence(&world, &short).await.unwrap();
    assert_eq!(world.store.silences().await, Ok(vec![everything.clone(), short.clone()]));
    let audit = world.audit_entry(&short.id.to_string());
    let at = audit.at;
    let ended = world.store.end_silence(short.id, at, audit.clone()).await;
    assert_eq!(ended, Ok(Silence { until: at, ..short.clone() }));
    assert_eq!(world.audit_trail().await[0], audit);
    assert_eq!(world.store.silences().await, Ok(vec![everything.clone()]));
    let again = world.store.end_silence(short.id, at, world.audit_entry("again")).await;
    assert!(matches!(again, Err(StoreError::NotFound(_))), "{again:?}");
    assert_ne!(world.audit_trail().await[0].target, "again");
    world.source.set(everything.until);
    assert_eq!(world.store.silences().await, Ok(vec![]));
}

pub(super) async fn a_bad_silence_is_refused(world: World) {
    let good = silence(&world, Timestamp::from_millis(START.as_millis() + 1));
    for (named, silence) in [
        ("rule", Silence { rule: Some("a\0b".to_owned()), ..good.clone() }),
        ("subject (bytes)", Silence { subject: Some("x".repeat(9_999)), ..good.clone() }),
        ("by (bytes)", Silence { by: "x".repeat(9_999), ..good.clone() }),
        ("reason (bytes)", Silence { reason: "x".repeat(9_999), ..good.clone() }),
        ("until", Silence { until: START, ..good.clone() }),
    ] {
        let refused = save_silence(&world, &silence).await;
        assert!(
            matches!(&refused, Err(StoreError::Invalid { field, .. }) if field == named),
            "{refused:?}"
        );
    }
    let unknown = Silence { tenant: Some("gone".parse().unwrap()), ..good };
    let refused = save_silence(&world, &unknown).await;
    assert!(matches!(refused, Err(StoreError::NotFound(_))), "{refused:?}");
    assert_eq!(world.audit_trail().await, []);
}

pub(super) async fn silences_are_bounded(world: World) {
    let until = Timestamp::from_millis(START.as_millis() + 100_000_000);
    let first = silence(&world, until);
    save_silence(&world, &first).await.unwrap();
    for _ in 1..SILENCES_MAX {
        save_silence(&world, &silence(&world, until)).await.unwrap();
    }
    let refused = save_silence(&world, &silence(&world, until)).await;
    assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
    save_silence(&world, &first).await.unwrap();
}

pub(super) async fn alerts_are_pruned_when_they_ended_long_ago(world: World) {
    let (open, old, untold) = (fired(&world), fired(&world), fired(&world));
    let old = resolved(&old, world.later(1));
    let untold = Alert { told: Told::Fired, ..resolved(&untold, world.later(1)) };
    let past = silence(&world, world.later(1));
    save_silence(&world, &past).await.unwrap();
    let cut = world.later(10_000);
    let young = resolved(&fired(&world), cut);
    save(&world, &[&open, &old, &untold, &young]).await;
    let step = PruneStep { alerts_before: cut, ..PruneStep::of_all_before(START, 9) };
    assert_eq!(world.store.prune(step).await.unwrap().others, 2);
    assert_eq!(listed(&world, all()).await, [young.id, untold.id, open.id]);
}

pub(super) async fn alerts_are_erased_with_their_tenant(world: World) {
    let servers = fired(&world);
    let mine = Alert { tenant: Some(world.tenant.clone()), ..fired(&world) };
    save(&world, &[&servers, &mine]).await;
    let until = Timestamp::from_millis(world.later(1).as_millis() + 1_000_000);
    let of_all = Silence { tenant: None, ..silence(&world, until) };
    save_silence(&world, &of_all).await.unwrap();
    save_silence(&world, &silence(&world, until)).await.unwrap();
    world.erase(&world.tenant).await;
    assert_eq!(listed(&world, all()).await, [servers.id]);
    assert_eq!(world.store.silences().await, Ok(vec![of_all]));
    save(&world, &[&mine]).await;
    assert_eq!(world.store.alert(mine.id).await, Ok(None));
}

pub(super) async fn a_backup_holds_alerts_and_silences(world: World) {
    let alert = fired(&world);
    save(&world, &[&alert]).await;
    let until = Timestamp::from_millis(world.later(1).as_millis() + 1_000_000);
    let silence = silence(&world, until);
    save_silence(&world, &silence).await.unwrap();
    let path = world.new_path();
    world.store.backup(&path).await.unwrap();
    let restored = world.restore(&path, 1).await.unwrap();
    assert_eq!(restored.open_alerts().await, Ok(vec![alert]));
    assert_eq!(restored.silences().await, Ok(vec![silence]));
}
