//! More is handed in than can be sent.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use railpost_dispatch::DispatcherConfig;
use railpost_store::{Event, Receipt};

use crate::flaky::Flaky;
use crate::harness::{Harness, event, in_time, memory_store, quick};
use crate::receiver::Receiver;

/// Attempts that an endpoint has under way at most, unless its policy says otherwise.
const IN_FLIGHT: usize = 64;

/// More than wait when sending keeps up.
const MANY: usize = 1_200;

fn events(name: &str, count: usize) -> Vec<Event> {
    (0..count).map(|number| event(&format!("{name}-{number}"), None)).collect()
}

type Accepting<'s> = Pin<Box<dyn Future<Output = Vec<Receipt>> + 's>>;

/// Begins to accept three batches, each as far as it gets.
async fn begin_three<'s>(harness: &'s Harness, name: &str) -> Vec<Accepting<'s>> {
    let batch = |number: usize| -> Accepting<'s> {
        Box::pin(harness.accept(events(&format!("{name}-{number}"), 100)))
    };
    let mut begun: Vec<_> = (0..3).map(batch).collect();
    for accepting in &mut begun {
        let waits = poll_fn(|cx| Poll::Ready(accepting.as_mut().poll(cx).is_pending())).await;
        assert!(waits);
    }
    begun
}

#[tokio::test]
async fn while_many_wait_to_be_sent_batches_are_accepted_one_by_one() {
    let flaky = Flaky::new(memory_store());
    let mut harness = Harness::on(flaky.clone(), DispatcherConfig::default()).await;
    let mut receiver = Receiver::start().await;
    harness.endpoint(&receiver, quick()).await;
    let answers: Vec<_> = (0..IN_FLIGHT).map(|_| receiver.then_wait()).collect();

    let held = flaky.hold_accepts().await;
    let begun = begin_three(&harness, "before").await;
    assert_eq!(flaky.accepts_begun(), 3);
    drop(held);
    for accepting in begun {
        in_time(accepting).await;
    }

    for half in ["first", "second"] {
        harness.accept(events(half, MANY / 2)).await;
    }
    receiver.texts(IN_FLIGHT).await;
    // An order that is obeyed later says that the loop has been through with those.
    in_time(harness.dispatcher.counters()).await.unwrap();
    flaky.accepts_begun();
    let held = flaky.hold_accepts().await;
    let begun = begin_three(&harness, "after").await;
    assert_eq!(flaky.accepts_begun(), 1, "the others wait for their turn");
    drop(held);
    for accepting in begun {
        assert_eq!(in_time(accepting).await.len(), 100, "they get it");
    }

    answers.into_iter().for_each(|answer| answer.send(200).unwrap());
    receiver.texts(2 * 300 + MANY - IN_FLIGHT).await;
    harness.stop().await;
    assert_eq!(receiver.left(), 0);
}
