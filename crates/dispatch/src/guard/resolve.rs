//! From a name to addresses.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, watch};

use crate::limits::LOOKUPS_MAX;

/// A lookup under way.
pub type Lookup<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Looks names up. What it answers is checked by the guard, every address, each time.
pub trait Resolve: Send + Sync {
    /// The addresses of `host`, in the order in which to try them.
    fn resolve<'a>(&'a self, host: &'a str) -> Lookup<'a>;
}

/// Asks the operating system, as every other program on the machine does: its caches, search lists
/// and `hosts` file apply.
///
/// The system answers on a thread, which stays taken for as long as a broken name server likes, even
/// if no caller waits any more. So there is one question at a time for each name, for all callers, and a
/// bound on all of them.
pub struct SystemResolver(Arc<Lookups>);

impl Default for SystemResolver {
    fn default() -> Self {
        Self(Arc::new(Lookups::new(Box::new(|host| Box::pin(ask_system(host))))))
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        Box::pin(Arc::clone(&self.0).get(host))
    }
}

async fn ask_system(host: String) -> io::Result<Vec<IpAddr>> {
    // The port plays no part in a lookup.
    let found = tokio::net::lookup_host((host, 0)).await?;
    Ok(found.map(|address| address.ip()).collect())
}

type Ask = Box<dyn Fn(String) -> Lookup<'static> + Send + Sync>;

/// What came of a question; its error in words, since all who asked get it.
type Answer = Result<Vec<IpAddr>, String>;

/// The questions under way.
struct Lookups {
    ask: Ask,
    slots: Semaphore,
    under_way: Mutex<HashMap<String, watch::Receiver<Option<Answer>>>>,
}

impl Lookups {
    fn new(ask: Ask) -> Self {
        Self { ask, slots: Semaphore::new(LOOKUPS_MAX), under_way: Mutex::default() }
    }

    /// Joins the question about `host`, or asks it.
    fn get(self: Arc<Self>, host: &str) -> impl Future<Output = io::Result<Vec<IpAddr>>> + use<> {
        let mut answer = self.join(host);
        async move {
            let gone = |_| io::Error::other("the lookup was given up");
            let answer = answer.wait_for(Option::is_some).await.map_err(gone)?;
            answer.clone().unwrap_or(Ok(Vec::new())).map_err(io::Error::other)
        }
    }

    fn join(self: Arc<Self>, host: &str) -> watch::Receiver<Option<Answer>> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = under_way.get(host) {
            return answer.clone();
        }
        let (sender, receiver) = watch::channel(None);
        under_way.insert(host.to_owned(), receiver.clone());
        tokio::spawn(Arc::clone(&self).run(host.to_owned(), sender));
        receiver
    }

    /// Asks, whether or not anybody waits to the end.
    async fn run(self: Arc<Self>, host: String, answer: watch::Sender<Option<Answer>>) {
        let found = match self.slots.acquire().await {
            Ok(_slot) => (self.ask)(host.clone()).await.map_err(|error| error.to_string()),
            Err(_) => Err("no lookups are made any more".to_owned()),
        };
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&host);
        answer.send_replace(Some(found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn the_system_knows_its_own_name() {
        let found = SystemResolver::default().resolve("localhost").await.unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty(), "{found:?}");
    }

    /// Lookups that are counted and end when the test says so.
    fn held_up() -> (Arc<Lookups>, Arc<AtomicUsize>, Arc<Semaphore>) {
        let (asked, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (counter, held) = (Arc::clone(&asked), Arc::clone(&gate));
        let lookups = Lookups::new(Box::new(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            let held = Arc::clone(&held);
            Box::pin(async move {
                held.acquire().await.unwrap().forget();
                Ok(vec![IpAddr::from([192, 0, 2, 1])])
            })
        }));
        (Arc::new(lookups), asked, gate)
    }

    #[tokio::test]
    async fn who_asks_while_a_question_is_under_way_shares_its_answer() {
        let (lookups, asked, gate) = held_up();
        let get = || Arc::clone(&lookups).get("slow.example");
        let (first, second, given_up) = (get(), get(), get());
        drop(given_up);
        gate.add_permits(1);
        let (first, second) = tokio::join!(first, second);
        assert_eq!(first.unwrap(), second.unwrap());
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        gate.add_permits(1);
        get().await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 2, "an answer is not kept");
    }

    #[tokio::test]
    async fn only_so_many_questions_are_under_way() {
        let (lookups, asked, gate) = held_up();
        let names = (0..LOOKUPS_MAX + 1).map(|n| format!("{n}.example"));
        let waiting: Vec<_> = names.map(|name| Arc::clone(&lookups).get(&name)).collect();
        while asked.load(Ordering::SeqCst) < LOOKUPS_MAX {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        assert_eq!(asked.load(Ordering::SeqCst), LOOKUPS_MAX);
        gate.add_permits(LOOKUPS_MAX + 1);
        for lookup in waiting {
            lookup.await.unwrap();
        }
    }
}
