//! The judge of `outbox_kills` finds each defect that a run could have.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "outbox_kills/judge.rs"]
#[allow(dead_code, reason = "the runs need all of it")]
mod judge;

use judge::{Arrivals, Delivered, Written};

/// Number `n` of a key.
fn event(key: &str, n: i64) -> Delivered {
    Delivered { id: format!("{key}-{n}"), key: key.to_owned(), n, kills: 0 }
}

/// What two keys wrote: three events each.
fn written() -> Written {
    let committed = ["a", "b"].into_iter().flat_map(|key| (1..=3).map(move |n| event(key, n).id));
    Written { committed: committed.collect(), rolled_back: 1 }
}

/// The violations of a run in which these events arrived, each after its COMMIT was sent.
fn violations(arrived: &[Delivered]) -> Vec<String> {
    let mut arrivals = Arrivals::default();
    for event in arrived {
        arrivals.allow(&event.id);
        arrivals.add(event.clone());
    }
    arrivals.violations(&written())
}

fn all() -> Vec<Delivered> {
    let numbers = 1..=3;
    numbers.flat_map(|n| [event("a", n), event("b", n)]).collect()
}

#[test]
fn a_run_in_which_everything_arrived_in_order_has_no_violation() {
    assert_eq!(violations(&all()), Vec::<String>::new());
}

#[test]
fn an_event_that_arrives_again_is_a_duplicate_and_no_violation() {
    let (mut arrivals, mut arrived) = (Arrivals::default(), all());
    arrived.push(event("a", 1));
    for event in arrived {
        arrivals.allow(&event.id);
        arrivals.add(event);
    }
    assert_eq!((arrivals.duplicates, arrivals.violations(&written())), (1, Vec::new()));
}

#[test]
fn a_lost_event_is_found_also_if_it_is_the_last_of_its_key() {
    let mut arrived = all();
    arrived.retain(|event| event.id != "a-3");
    assert_eq!(violations(&arrived), ["a-3 never arrived"]);
    let mut arrived = all();
    arrived.retain(|event| event.id != "b-2");
    assert_eq!(violations(&arrived), ["b-2 never arrived", "b-3: number 3 of b came after 1"]);
}

#[test]
fn an_event_that_was_rolled_back_is_found() {
    let mut arrived = all();
    arrived.push(event("c", 1));
    assert_eq!(violations(&arrived), ["c-1 arrived and was rolled back"]);
}

#[test]
fn two_events_of_a_key_that_changed_places_are_found() {
    let mut arrived = all();
    let places = ["a-2", "a-3"].map(|id| arrived.iter().position(|event| event.id == id).unwrap());
    arrived.swap(places[0], places[1]);
    let found = violations(&arrived);
    assert_eq!(found, ["a-3: number 3 of a came after 1", "a-2: number 2 of a came after 3"]);
}

#[test]
fn an_event_that_arrives_before_its_commit_is_found() {
    let mut arrivals = Arrivals::default();
    for event in all() {
        if event.id != "b-1" {
            arrivals.allow(&event.id);
        }
        arrivals.add(event);
    }
    arrivals.allow("b-1");
    assert_eq!(arrivals.violations(&written()), ["b-1 arrived before it was committed"]);
}
