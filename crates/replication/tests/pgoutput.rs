//! The decoder of `pgoutput`: bytes by hand, round trips, and any bytes at all.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::*;
use railpost_replication::Lsn;
use railpost_replication::pgoutput::{
    Begin, Column, Commit, Insert, LogicalMessage, Message, Relation, Value, decode,
};

/// 2000-01-01 in microseconds since 1970.
const EPOCH_US: i64 = 946_684_800_000_000;

fn decoded(bytes: &'static [u8]) -> Message {
    decode(Bytes::from_static(bytes)).unwrap()
}

#[test]
fn a_transaction_s_head_and_end_are_read() {
    let begin = decoded(b"B\0\0\0\x16\xB3\x74\xD8\x48\0\0\0\0\0\0\0\x05\0\0\x02\xDB");
    let commit_lsn: Lsn = "16/B374D848".parse().unwrap();
    assert_eq!(begin, Message::Begin(Begin { commit_lsn, commit_time_us: EPOCH_US + 5, xid: 731 }));
    let commit =
        decoded(b"C\0\0\0\0\x16\xB3\x74\xD8\x48\0\0\0\x16\xB3\x74\xD8\x78\0\0\0\0\0\0\0\x05");
    let end_lsn = "16/B374D878".parse().unwrap();
    assert_eq!(
        commit,
        Message::Commit(Commit { commit_lsn, end_lsn, commit_time_us: EPOCH_US + 5 })
    );
}

#[test]
fn a_table_and_a_row_of_it_are_read() {
    let relation = decoded(
        b"R\0\0\x40\x06public\0outbox\0d\0\x02\
          \x01id\0\0\0\0\x14\xFF\xFF\xFF\xFF\0type\0\0\0\0\x19\xFF\xFF\xFF\xFF",
    );
    let column = |is_key, name: &str, type_oid| Column {
        is_key,
        name: name.to_owned(),
        type_oid,
        type_modifier: -1,
    };
    let expected = Relation {
        id: 0x4006,
        schema: "public".to_owned(),
        name: "outbox".to_owned(),
        replica_identity: b'd',
        columns: vec![column(true, "id", 20), column(false, "type", 25)],
    };
    assert_eq!(relation, Message::Relation(expected));
    let insert = decoded(b"I\0\0\x40\x06N\0\x04t\0\0\0\x0242nub\0\0\0\x01\x07");
    let values = vec![
        Value::Text(Bytes::from_static(b"42")),
        Value::Null,
        Value::Unchanged,
        Value::Binary(Bytes::from_static(b"\x07")),
    ];
    assert_eq!(insert, Message::Insert(Insert { relation: 0x4006, values }));
}

#[test]
fn a_logical_message_is_read_with_and_without_its_transaction() {
    for (flags, transactional) in [(1, true), (0, false)] {
        let mut bytes = b"M?\0\0\0\0\0\0\0\x09railpost\0\0\0\0\x03a\0b".to_vec();
        bytes[1] = flags;
        let expected = LogicalMessage {
            transactional,
            lsn: Lsn::from_u64(9),
            prefix: "railpost".to_owned(),
            content: Bytes::from_static(b"a\0b"),
        };
        assert_eq!(decode(bytes.into()).unwrap(), Message::Logical(expected));
    }
}

#[test]
fn other_messages_are_known_by_their_tag_alone() {
    for tag in *b"UDTOYS" {
        assert_eq!(decode(Bytes::from(vec![tag, 1, 2, 3])).unwrap(), Message::Other(tag));
    }
}

#[test]
fn a_system_table_s_schema_has_its_name() {
    let Message::Relation(relation) = decoded(b"R\0\0\0\x01\0pg_class\0n\0\0") else { panic!() };
    assert_eq!((relation.schema.as_str(), relation.columns.len()), ("pg_catalog", 0));
}

#[test]
fn bytes_that_do_not_follow_the_protocol_are_rejected_with_the_reason() {
    for (bytes, reason) in [
        (&b""[..], "ends too early"),
        (b"B\0\0", "`B`: it ends too early"),
        (b"I\0\0\0\x01K\0\0", "expected the new row"),
        (b"I\0\0\0\x01N\0\x01x", "unknown kind"),
        (b"I\0\0\0\x01N\0\x01t\xFF\xFF\xFF\xFF", "negative length"),
        (b"I\0\0\0\x01N\0\x01t\x7F\xFF\xFF\xFF", "ends too early"),
        (b"I\0\0\0\x01N\xFF\xFF", "ends too early"),
        (b"I\0\0\0\x01N\0\0more", "goes on after its end"),
        (b"R\0\0\0\x01\xFF\0name\0n\0\0", "not UTF-8"),
        (b"R\0\0\0\x01public", "without an end"),
    ] {
        let error = decode(Bytes::from_static(bytes)).unwrap_err().to_string();
        assert!(error.contains(reason), "{reason} in {error}");
    }
}

fn lsn() -> impl Strategy<Value = Lsn> {
    any::<u64>().prop_map(Lsn::from_u64)
}

/// Times of the server, which end before the year 300000.
fn time_us() -> impl Strategy<Value = i64> {
    (i64::MIN / 2..i64::MAX / 2).prop_map(|since| since + EPOCH_US)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from)
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(Value::Unchanged),
        bytes().prop_map(Value::Text),
        bytes().prop_map(Value::Binary),
    ]
}

fn name() -> impl Strategy<Value = String> {
    "[^\0]{1,40}"
}

fn column() -> impl Strategy<Value = Column> {
    (any::<bool>(), name(), any::<u32>(), any::<i32>()).prop_map(
        |(is_key, name, type_oid, type_modifier)| Column { is_key, name, type_oid, type_modifier },
    )
}

fn any_message() -> impl Strategy<Value = Message> {
    let begin = (lsn(), time_us(), any::<u32>()).prop_map(|(commit_lsn, commit_time_us, xid)| {
        Message::Begin(Begin { commit_lsn, commit_time_us, xid })
    });
    let commit = (lsn(), lsn(), time_us()).prop_map(|(commit_lsn, end_lsn, commit_time_us)| {
        Message::Commit(Commit { commit_lsn, end_lsn, commit_time_us })
    });
    let columns = prop::collection::vec(column(), 0..20);
    let relation = (any::<u32>(), name(), name(), any::<u8>(), columns).prop_map(
        |(id, schema, name, replica_identity, columns)| {
            Message::Relation(Relation { id, schema, name, replica_identity, columns })
        },
    );
    let insert = (any::<u32>(), prop::collection::vec(value(), 0..20))
        .prop_map(|(relation, values)| Message::Insert(Insert { relation, values }));
    let logical = (any::<bool>(), lsn(), name(), bytes()).prop_map(
        |(transactional, lsn, prefix, content)| {
            Message::Logical(LogicalMessage { transactional, lsn, prefix, content })
        },
    );
    prop_oneof![begin, commit, relation, insert, logical]
}

fn encoded(message: &Message) -> Bytes {
    let mut out = BytesMut::new();
    match message {
        Message::Begin(begin) => {
            out.put_u8(b'B');
            out.put_u64(begin.commit_lsn.as_u64());
            out.put_i64(begin.commit_time_us - EPOCH_US);
            out.put_u32(begin.xid);
        }
        Message::Commit(commit) => {
            out.put_slice(b"C\0");
            out.put_u64(commit.commit_lsn.as_u64());
            out.put_u64(commit.end_lsn.as_u64());
            out.put_i64(commit.commit_time_us - EPOCH_US);
        }
        Message::Relation(relation) => {
            out.put_u8(b'R');
            out.put_u32(relation.id);
            put_text(&mut out, &relation.schema);
            put_text(&mut out, &relation.name);
            out.put_u8(relation.replica_identity);
            out.put_u16(u16::try_from(relation.columns.len()).unwrap());
            for column in &relation.columns {
                out.put_u8(u8::from(column.is_key));
                put_text(&mut out, &column.name);
                out.put_u32(column.type_oid);
                out.put_i32(column.type_modifier);
            }
        }
        Message::Insert(insert) => {
            out.put_u8(b'I');
            out.put_u32(insert.relation);
            out.put_u8(b'N');
            out.put_u16(u16::try_from(insert.values.len()).unwrap());
            for value in &insert.values {
                match value {
                    Value::Null => out.put_u8(b'n'),
                    Value::Unchanged => out.put_u8(b'u'),
                    Value::Text(bytes) => {
                        out.put_u8(b't');
                        put_counted(&mut out, bytes);
                    }
                    Value::Binary(bytes) => {
                        out.put_u8(b'b');
                        put_counted(&mut out, bytes);
                    }
                }
            }
        }
        Message::Logical(message) => {
            out.put_u8(b'M');
            out.put_u8(u8::from(message.transactional));
            out.put_u64(message.lsn.as_u64());
            put_text(&mut out, &message.prefix);
            put_counted(&mut out, &message.content);
        }
        Message::Other(_) => unreachable!("other messages are not encoded"),
    }
    out.freeze()
}

fn put_text(out: &mut BytesMut, text: &str) {
    out.put_slice(text.as_bytes());
    out.put_u8(0);
}

fn put_counted(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32(u32::try_from(bytes.len()).unwrap());
    out.put_slice(bytes);
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(message in any_message()) {
        prop_assert_eq!(decode(encoded(&message)).unwrap(), message);
    }

    #[test]
    fn a_message_that_is_cut_or_too_long_is_rejected(
        message in any_message(),
        len in any::<prop::sample::Index>(),
    ) {
        let whole = encoded(&message);
        let len = len.index(whole.len());
        prop_assert!(decode(whole.slice(..len)).is_err());
        let mut longer = BytesMut::from(whole);
        longer.put_u8(0);
        prop_assert!(decode(longer.freeze()).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic(
        tag in prop::sample::select(b"BCRIM".to_vec()),
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = decode(Bytes::from(bytes.clone()));
        bytes.insert(0, tag);
        let _ = decode(Bytes::from(bytes));
    }

    #[test]
    fn no_changed_byte_makes_it_panic(
        message in any_message(),
        at in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let mut bytes = encoded(&message).to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = decode(Bytes::from(bytes));
    }
}
