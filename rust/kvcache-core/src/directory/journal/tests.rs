//! One journal, its writers and its reader.

use std::thread;
use std::time::Duration;

use super::*;
use crate::model::Sequence;

const SHOWN: Shown = Shown {
    sequence: Sequence(7),
    device_blocks: 3,
    host_blocks: 1,
};

fn journal() -> (Arc<Journal>, Story, Scribe, Instant) {
    let (journal, start) = (Arc::new(Journal::default()), Instant::now());
    let (story, scribe) = journal.open(StreamKey::new("a", 0), start);
    (journal, story, scribe, start)
}

fn told(journal: &Journal) -> Vec<Change> {
    let entries = journal.lock().backlog.take(Instant::now());
    entries
        .transitions
        .into_iter()
        .map(|one| one.change)
        .collect()
}

#[test]
fn a_life_is_told_once_a_turn() {
    let (journal, _story, mut scribe, start) = journal();
    let after = |seconds| start + Duration::from_secs(seconds);
    scribe.unpublished(after(1), "connecting");
    assert_eq!(told(&journal), [], "it never was there");
    scribe.published(after(2), SHOWN);
    scribe.published(after(3), SHOWN);
    scribe.advanced(Sequence(9));
    scribe.unpublished(after(4), "sequence gap");
    scribe.unpublished(after(5), "no snapshot");
    scribe.published(after(9), SHOWN);
    let lost = Change::Lost {
        sequence: Some(Sequence(9)),
        reason: "sequence gap".to_owned(),
    };
    assert_eq!(
        told(&journal),
        [
            Change::First {
                after: Duration::from_secs(2),
                shown: SHOWN
            },
            lost,
            Change::Returned {
                after: Duration::from_secs(5),
                shown: SHOWN
            },
        ]
    );
}

#[test]
fn a_stream_that_is_not_followed_any_more_is_not_lost() {
    let (journal, story, mut scribe, start) = journal();
    scribe.published(start, SHOWN);
    assert_eq!(told(&journal).len(), 1);
    drop(story);
    scribe.unpublished(start, "anything");
    drop(scribe);
    assert_eq!(told(&journal), []);
}

#[test]
fn a_worker_that_ends_by_itself_is_a_loss() {
    let (journal, _story, mut scribe, start) = journal();
    scribe.published(start, SHOWN);
    drop(scribe);
    let changes = told(&journal);
    let [Change::First { .. }, Change::Lost { reason, .. }] = &changes[..] else {
        panic!("{changes:?}")
    };
    assert!(reason.starts_with("an internal fault"), "{reason}");
}

#[test]
fn a_reason_is_cut() {
    let (journal, _story, mut scribe, start) = journal();
    scribe.published(start, SHOWN);
    scribe.unpublished(start, &"\u{e9}".repeat(100_000));
    let last = told(&journal).pop();
    assert!(matches!(&last, Some(Change::Lost { reason, .. }) if reason.chars().count() == 512));
}

#[test]
fn the_reader_is_woken_and_ends_with_the_journal() {
    let (journal, _story, mut scribe, start) = journal();
    let reader = {
        let journal = journal.clone();
        thread::spawn(move || {
            let mut read = Vec::new();
            while let Some(entries) = journal.wait() {
                read.extend(entries.transitions);
            }
            read.len()
        })
    };
    scribe.published(start, SHOWN);
    // More than the budget: the last of them is held, and told at the end.
    for _ in 0..20 {
        scribe.unpublished(start, "gap");
        scribe.published(start, SHOWN);
    }
    journal.close();
    assert_eq!(reader.join().unwrap(), 11);
    scribe.unpublished(start, "too late");
    assert_eq!(journal.wait(), None);
}
