//! Readers without a group get everything after the id they were ready at, once and in order, or are told of the gap.

use std::collections::BTreeSet;
use std::ops::Bound;

use stream_core::EntryId;

use super::super::Expectations;
use super::super::facts::{Facts, Read};
use super::super::verdict::{Rule, Verdict};
use super::fate::named;

pub(super) fn check(facts: &Facts, expectations: &Expectations, verdict: &mut Verdict) {
    for (process, reads) in &facts.readers {
        let (mut ready, mut got, mut gaps, mut latest) = (None, BTreeSet::new(), Vec::new(), None);
        // Who has ended may not have come to the last ones, nor to telling that some before them were gone.
        let (had_time, mut judged) = (facts.had_time_until(*process), None);
        for read in reads {
            match *read {
                Read::Ready(after) => ready = ready.or(Some(after)),
                Read::Gap(after, before) => gaps.push((after, before)),
                Read::Reset(from) => latest = Some(from),
                Read::Got(at, id) => {
                    if at <= had_time {
                        judged = judged.max(Some(id));
                    }
                    // Who was told that its stream fell back begins anew there, wherever it was ready.
                    let after = latest.or(ready);
                    if after.is_some_and(|after| id <= after) {
                        verdict.complain(Rule::Order, format!("reader {process} got {id} after {after:?}"));
                    }
                    latest = latest.max(Some(id));
                    got.insert(id);
                }
            }
        }
        verdict.counts.read += got.len() as u64;
        let Some(after) = ready else {
            if latest.is_some() {
                verdict.complain(Rule::Journal, format!("reader {process} got entries before it was ready"));
            }
            continue;
        };
        let lives = facts.ended(*process).is_none() && expectations.settled;
        let until = if lives { Some(EntryId::MAX) } else { judged };
        let Some(until) = until.filter(|until| *until > after) else { continue };
        for (id, entry) in facts.entries.range((Bound::Excluded(after), Bound::Included(until))) {
            let told = gaps.iter().any(|(after, before)| after < id && id <= before);
            if entry.published.is_some() && !entry.forgotten && !got.contains(id) && !told {
                let what = named(*id, entry);
                verdict
                    .complain(Rule::Missed, format!("reader {process} did not get {what} and was not told of a gap"));
            }
        }
    }
}
