//! The usual attempt in a few bytes: the first one, acknowledged, with nothing to tell of the response
//! but its status. It is kept in its delivery's own row, which has to be written anyway; every other
//! attempt has a row of its own.

use railpost_engine::{AttemptResult, Stage, Timestamp};
use railpost_wire::NodeId;

use crate::{AttemptDetail, AttemptView, Result, StoreError, Timing};

/// Says how the rest is to be read. Stable: another layout gets another number.
const LAYOUT: u8 = 1;

/// The attempt in a few bytes: layout, start, status, total, which of the following are there, and
/// those. Nothing if it has more to tell.
pub fn encode(detail: &AttemptDetail, led_to: Stage) -> Option<Vec<u8>> {
    let AttemptDetail { number, started_at, result, timing, node, .. } = detail;
    let AttemptResult::Response { status, retry_after: None } = result else { return None };
    if *number != 1 || led_to != Stage::Delivered || has_words(detail) {
        return None;
    }
    let parts = [timing.dns_us, timing.connect_us, timing.tls_us, timing.first_byte_us];
    let mut bytes = vec![LAYOUT];
    bytes.extend(started_at.as_millis().to_be_bytes());
    bytes.extend(status.to_be_bytes());
    bytes.extend(timing.total_us.to_be_bytes());
    let flags = parts.iter().map(Option::is_some).chain([node.is_some()]);
    bytes.push(flags.rev().fold(0, |flags, there| flags << 1 | u8::from(there)));
    bytes.extend(parts.into_iter().flatten().flat_map(u32::to_be_bytes));
    bytes.extend(node.map(NodeId::to_bytes).into_iter().flatten());
    Some(bytes)
}

fn has_words(detail: &AttemptDetail) -> bool {
    detail.message.is_some()
        || !detail.response_headers.is_empty()
        || !detail.response_body.is_empty()
}

/// Reads back what [`encode`] wrote.
pub fn decode(bytes: &[u8]) -> Result<AttemptView> {
    let refuse = || StoreError::Corrupt("an attempt in brief does not read back".to_owned());
    let view = Reader(bytes).view().ok_or_else(refuse)?;
    Ok(view)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn part(&mut self, there: bool) -> Option<Option<u32>> {
        if !there {
            return Some(None);
        }
        self.take().map(u32::from_be_bytes).map(Some)
    }

    fn view(&mut self) -> Option<AttemptView> {
        let [LAYOUT] = self.take()? else { return None };
        let started_at = Timestamp::from_millis(u64::from_be_bytes(self.take()?));
        let status = u16::from_be_bytes(self.take()?);
        let total_us = u32::from_be_bytes(self.take()?);
        let [flags] = self.take()?;
        let there = |bit: u8| flags & (1 << bit) != 0;
        let timing = Timing {
            dns_us: self.part(there(0))?,
            connect_us: self.part(there(1))?,
            tls_us: self.part(there(2))?,
            first_byte_us: self.part(there(3))?,
            total_us,
        };
        let node = if there(4) { Some(NodeId::from_bytes(self.take()?)) } else { None };
        let detail = AttemptDetail {
            number: 1,
            started_at,
            result: AttemptResult::Response { status, retry_after: None },
            timing,
            message: None,
            response_headers: vec![],
            response_body: bytes::Bytes::new(),
            node,
        };
        self.0.is_empty().then_some(AttemptView { detail, led_to: Stage::Delivered, next_at: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use railpost_engine::{Failure, Span};

    fn usual() -> AttemptView {
        let timing = Timing { first_byte_us: Some(4), total_us: 5, ..Timing::default() };
        let detail = AttemptDetail {
            number: 1,
            started_at: Timestamp::from_millis(0x0102),
            result: AttemptResult::Response { status: 204, retry_after: None },
            timing,
            message: None,
            response_headers: vec![],
            response_body: bytes::Bytes::new(),
            node: None,
        };
        AttemptView { detail, led_to: Stage::Delivered, next_at: None }
    }

    fn encode(view: &AttemptView) -> Option<Vec<u8>> {
        super::encode(&view.detail, view.led_to)
    }

    #[test]
    fn the_layout_never_changes() {
        let bytes = encode(&usual()).unwrap();
        let expected = [1, 0, 0, 0, 0, 0, 0, 1, 2, 0, 204, 0, 0, 0, 5, 0b1000, 0, 0, 0, 4];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn every_usual_attempt_reads_back() {
        for flags in 0..32_u32 {
            let part = |bit: u32| (flags & (1 << bit) != 0).then_some(1_000 + bit);
            let mut view = usual();
            view.detail.timing = Timing {
                dns_us: part(0),
                connect_us: part(1),
                tls_us: part(2),
                first_byte_us: part(3),
                total_us: u32::MAX,
            };
            view.detail.node = part(4).map(|number| NodeId::from_u128(number.into()));
            assert_eq!(decode(&encode(&view).unwrap()), Ok(view));
        }
    }

    #[test]
    fn an_attempt_with_more_to_tell_is_not_brief() {
        let mut others = vec![AttemptView { led_to: Stage::Waiting, ..usual() }];
        let mut change = |change: &dyn Fn(&mut AttemptDetail)| {
            let mut view = usual();
            change(&mut view.detail);
            others.push(view);
        };
        change(&|detail| detail.number = 2);
        change(&|detail| detail.message = Some(String::new()));
        change(&|detail| detail.response_body = "x".into());
        change(&|detail| detail.response_headers = vec![(String::new(), String::new())]);
        change(&|detail| detail.result = AttemptResult::Failed(Failure::Dns));
        change(&|detail| {
            let retry_after = Some(Span::ZERO);
            detail.result = AttemptResult::Response { status: 200, retry_after };
        });
        assert!(others.iter().all(|view| encode(view).is_none()));
    }

    #[test]
    fn bytes_that_are_cut_or_too_many_are_refused() {
        let bytes = encode(&usual()).unwrap();
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{len}");
        }
        assert!(decode(&[&bytes[..], &[0]].concat()).is_err());
    }
}
