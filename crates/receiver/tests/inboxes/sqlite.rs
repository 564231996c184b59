use crate::suite::{InboxUnderTest, follows_the_rules, remembers_a_gap_without_a_commit};
use crate::support::{DAY, NOW, event};
use railpost_receiver::sqlite::{SqliteInbox, create_tables};
use railpost_receiver::wire::{LineId, Received, Seq};
use railpost_receiver::{InboxConfig, NotedGap, OnGap, Policy, Verdict};
use rusqlite::Connection;

struct Sqlite {
    database: Connection,
    inbox: SqliteInbox,
}

fn sqlite(policy: Policy) -> Sqlite {
    let database = Connection::open_in_memory().unwrap();
    create_tables(&database).unwrap();
    create_tables(&database).unwrap();
    let inbox = SqliteInbox::new(InboxConfig { policy, ..InboxConfig::named("orders") });
    Sqlite { database, inbox }
}

impl InboxUnderTest for Sqlite {
    async fn offer(&mut self, received: &Received, now: i64, succeeds: bool) -> Verdict {
        let transaction = self.database.transaction().unwrap();
        let verdict = self.inbox.admit(&transaction, received, now).unwrap();
        if succeeds { transaction.commit() } else { transaction.rollback() }.unwrap();
        verdict
    }

    async fn applied(&mut self, line: &LineId) -> Option<Seq> {
        self.inbox.applied(&self.database, line).unwrap()
    }
}

#[tokio::test]
async fn the_sqlite_inbox_follows_the_rules() {
    follows_the_rules(async |policy| sqlite(policy)).await;
    remembers_a_gap_without_a_commit(sqlite(Policy::default())).await;
}

#[tokio::test]
async fn a_verdict_that_does_not_apply_has_written_nothing() {
    let mut tested = sqlite(Policy::default());
    tested.take(&event("1", Some(("A", 1)))).await;
    for (id, seq) in [("1", 1), ("other", 1), ("3", 3)] {
        assert!(!tested.take(&event(id, Some(("A", seq)))).await.applies());
    }
    let count = |table: &str| -> i64 {
        let sql = format!("select count(*) from {table}");
        tested.database.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!((count("railpost_inbox"), count("railpost_lines")), (1, 1));
}

#[tokio::test]
async fn inboxes_of_one_database_know_nothing_of_each_other() {
    let mut tested = sqlite(Policy::default());
    let received = event("1", None);
    assert_eq!(tested.take(&received).await, Verdict::Fresh);
    tested.inbox = SqliteInbox::new(InboxConfig::named("payments"));
    assert_eq!(tested.take(&received).await, Verdict::Fresh);
}

#[tokio::test]
async fn pruning_goes_in_steps_and_keeps_what_is_young() {
    let policy = Policy { on_gap: OnGap::Accept, ..Policy::default() };
    let mut tested = sqlite(policy);
    for number in 0..1_500 {
        tested.take(&event(&format!("{number}"), None)).await;
    }
    tested.take(&event("gap", Some(("A", 5)))).await;
    let (line, key) = ("A".to_owned(), Some("A".to_owned()));
    let noted = NotedGap { line, key, applied: 0, seq: 5, noted_at: NOW };
    assert_eq!(tested.inbox.gaps(&tested.database).unwrap(), [noted]);
    let later = NOW + 31 * DAY;
    let transaction = tested.database.transaction().unwrap();
    tested.inbox.admit(&transaction, &event("young", Some(("B", 1))), later).unwrap();
    transaction.commit().unwrap();
    let steps: Vec<usize> = std::iter::repeat_with(|| tested.inbox.prune(&tested.database, later))
        .map(Result::unwrap)
        .take_while(|&rows| rows > 0)
        .collect();
    assert_eq!(steps, [1_001, 501], "ids and one gap; the lines outlive them");
    assert_eq!(tested.take(&event("young", Some(("B", 1)))).await, Verdict::Duplicate);
    assert!(matches!(tested.take(&event("gap", Some(("A", 5)))).await, Verdict::Stale { .. }));
}
