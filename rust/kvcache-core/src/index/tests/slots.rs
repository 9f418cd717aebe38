//! View slots: publishing, taking away, and reuse once nobody can see the old bits.

use super::{Events, hit, hits, one_stream, published, spec};
use crate::hash::BlockKeys;
use crate::index::{Draft, Member, Origin, PrefixIndex, Publication, StreamWriter};
use crate::model::{ApplyError, Sequence, StreamKey, Tier};

/// A draft of one block, [1, 2] or [3, 4].
fn draft(writer: &StreamWriter, first: bool) -> Draft {
    try_draft(writer, first).unwrap()
}

fn try_draft(writer: &StreamWriter, first: bool) -> Result<Draft, ApplyError> {
    let mut draft = writer.new_draft();
    let tokens = if first { [1, 2] } else { [3, 4] };
    let events = Events::default().store(None, &[1], &tokens, Tier::Device);
    events.draft(&mut draft, Origin::Snapshot)?;
    Ok(draft)
}

#[test]
fn a_draft_is_seen_when_published() {
    let (index, mut writer) = one_stream(9);
    let first = draft(&writer, true);
    assert_eq!(hits(&index, &[1, 2]), (0, 0));
    let published = writer.publish(first, Some(Sequence(7))).unwrap();
    assert_eq!(published, Publication::Flipped);
    assert_eq!(hits(&index, &[1, 2]), (2, 0));
    let second = draft(&writer, false);
    writer.publish(second, Some(Sequence(8))).unwrap();
    assert_eq!(
        (hits(&index, &[1, 2]), hits(&index, &[3, 4])),
        ((0, 0), (2, 0))
    );
    assert_eq!(hit(&index.query_tokens(&[]), 0).sequence, Some(Sequence(8)));
}

#[test]
fn a_draft_tells_in_how_many_copies_the_view_differs() {
    let (_, mut writer) = one_stream(9);
    let changed = |writer: &StreamWriter, events: Events| {
        let mut draft = writer.new_draft();
        events.draft(&mut draft, Origin::Snapshot).unwrap();
        writer.copies_changed_by(&draft)
    };
    let chain = |names: &[u64], tier| {
        let tokens: Vec<u32> = (1..=u32::try_from(2 * names.len()).unwrap()).collect();
        Events::default().store(None, names, &tokens, tier)
    };
    let three = || chain(&[1, 2, 3], Tier::Device);
    assert_eq!(changed(&writer, three()), 3, "an empty view");
    let mut draft = writer.new_draft();
    three().draft(&mut draft, Origin::Snapshot).unwrap();
    writer.publish(draft, Some(Sequence(1))).unwrap();
    assert_eq!(changed(&writer, three()), 0);
    assert_eq!(changed(&writer, chain(&[7, 8, 9], Tier::Device)), 0);
    assert_eq!(changed(&writer, chain(&[1], Tier::Device)), 2);
    assert_eq!(changed(&writer, chain(&[1, 2, 3, 4], Tier::Device)), 1);
    let other_tier = || chain(&[1, 2, 3], Tier::Host);
    assert_eq!(changed(&writer, other_tier()), 6);
    let both = other_tier().store(None, &[1], &[1, 2], Tier::Device);
    assert_eq!(changed(&writer, both), 5);
    assert_eq!(writer.copies_changed_by(&writer.new_draft()), 3);
    writer.unpublish("lost");
    assert_eq!(changed(&writer, three()), 0, "nothing to compare with");
}

#[test]
fn a_snapshot_that_says_the_same_flips_nothing() {
    let (index, mut writer) = one_stream(9);
    let before = draft(&writer, true);
    writer.publish(before, Some(Sequence(1))).unwrap();
    let evicted = Events::default()
        .store(Some(1), &[2], &[3, 4], Tier::Device)
        .remove(&[2], Some(Tier::Device));
    evicted.apply(&mut writer).unwrap();
    let map = index.pin();
    let same = draft(&writer, true);
    assert_eq!(
        writer.publish(same, Some(Sequence(3))),
        Ok(Publication::Unchanged)
    );
    assert!(std::sync::Arc::ptr_eq(&map, &index.pin()));
    assert_eq!(writer.sequence(), Some(Sequence(3)));
    assert_eq!(writer.counts().known, 2);
}

#[test]
fn the_same_copies_may_bring_new_names() {
    let (index, mut writer) = one_stream(9);
    let before = draft(&writer, true);
    writer.publish(before, Some(Sequence(1))).unwrap();
    let mut same = writer.new_draft();
    let events = Events::default()
        .store(None, &[77], &[1, 2], Tier::Device)
        .store_elsewhere(None, &[78], &[5, 6]);
    events.draft(&mut same, Origin::Snapshot).unwrap();
    writer.publish(same, Some(Sequence(3))).unwrap();
    assert_eq!(writer.counts().known, 2);
    let removed = Events::default().remove(&[77], Some(Tier::Device));
    assert_eq!(removed.apply(&mut writer).unwrap().removed, 1);
    assert_eq!(hits(&index, &[1, 2]), (0, 0));
}

#[test]
fn an_unpublished_stream_keeps_its_row_and_says_why() {
    let (index, mut writer) = one_stream(9);
    let first = draft(&writer, true);
    writer.publish(first, Some(Sequence(4))).unwrap();
    writer.unpublish("sequence gap: 5 to 9");
    let matches = index.query_tokens(&[1, 2]);
    let (row, hit) = matches.get(0).unwrap();
    assert_eq!(row.error(), "sequence gap: 5 to 9");
    assert!(!hit.synchronized);
    assert_eq!((hit.device_hit_tokens, hit.device_blocks), (0, 0));
    assert_eq!(hit.sequence, Some(Sequence(4)));
    writer.set_error("replay timeout: 2000 ms");
    let matches = index.query_tokens(&[]);
    assert_eq!(matches.get(0).unwrap().0.error(), "replay timeout: 2000 ms");
    assert_eq!(writer.sequence(), Some(Sequence(4)));
    assert!(!writer.is_published());
    let second = draft(&writer, false);
    writer.publish(second, Some(Sequence(9))).unwrap();
    let matches = index.query_tokens(&[3, 4]);
    let (row, hit) = matches.get(0).unwrap();
    assert_eq!((row.error(), hit.device_hit_tokens), ("", 2));
}

#[test]
fn a_dropped_writer_takes_its_stream_along() {
    let (index, writer) = one_stream(9);
    let mut other = published(&index, "b", 9);
    Events::default()
        .store(None, &[1], &[1, 2], Tier::Device)
        .apply(&mut other)
        .unwrap();
    drop(writer);
    assert_eq!(
        (index.query_tokens(&[]).len(), hits(&index, &[1, 2])),
        (1, (2, 0))
    );
    drop(other);
    assert!(index.query_tokens(&[1, 2]).is_empty());
    let _again = published(&index, "b", 9);
    assert_eq!(hits(&index, &[1, 2]), (0, 0));
}

#[test]
fn slots_recycle_through_thousands_of_flips() {
    let (index, mut writer) = one_stream(9);
    let mut memory = 0;
    // Answers that are kept must not keep slots.
    let mut answers = Vec::new();
    for flip in 0..5_000_u64 {
        let next = draft(&writer, flip % 2 == 0);
        assert_eq!(
            writer.publish(next, Some(Sequence(flip))),
            Ok(Publication::Flipped)
        );
        let seen = (hits(&index, &[1, 2]).0, hits(&index, &[3, 4]).0);
        assert_eq!(seen, if flip % 2 == 0 { (2, 0) } else { (0, 2) });
        answers.push(index.query_tokens(&[1, 2]));
        if flip == 1_000 {
            memory = index.memory_bytes();
        }
    }
    assert_eq!(index.retired_views(), 0);
    // What waits to be freed comes in batches.
    assert!(index.memory_bytes() <= memory + 32_768);
    drop(answers);
}

#[test]
fn views_that_come_and_go_leave_nothing_on_a_run_that_stays() {
    let (index, mut writer) = one_stream(100);
    let mut neighbour = published(&index, "b", 100);
    let wires: Vec<u64> = (0..64).collect();
    let tokens: Vec<u32> = (0..128).collect();
    let whole = Events::default().store(None, &wires, &tokens, Tier::Device);
    whole.apply(&mut neighbour).unwrap();
    let mut memory = 0;
    for flip in 0..2_000_usize {
        let blocks = 5 + flip % 2;
        let mut part = writer.new_draft();
        let events =
            Events::default().store(None, &wires[..blocks], &tokens[..blocks * 2], Tier::Host);
        events.draft(&mut part, Origin::Snapshot).unwrap();
        writer.publish(part, None).unwrap();
        assert_eq!(hits(&index, &tokens), (0, 2 * blocks as u64));
        if flip == 200 {
            memory = index.memory_bytes();
        }
    }
    assert!(
        index.memory_bytes() <= memory + 4_096,
        "records are used again"
    );
}

#[test]
fn a_query_that_goes_on_holds_its_view() {
    let (index, mut writer) = one_stream(9);
    let keys = BlockKeys::compute(&[1, 2], spec(2));
    let first = draft(&writer, true);
    writer.publish(first, Some(Sequence(0))).unwrap();
    let map = index.pin();
    let mut flips = 0;
    let error = loop {
        match try_draft(&writer, flips % 2 == 1) {
            Ok(next) => writer.publish(next, Some(Sequence(1))).unwrap(),
            Err(error) => break error,
        };
        flips += 1;
        let pinned = hit(&index.walk_pinned(&map, &keys), 0);
        assert_eq!(
            (pinned.sequence, pinned.device_hit_tokens),
            (Some(Sequence(0)), 2)
        );
    };
    // 192 slots: one was free of the pinned map's view and none was given back.
    assert_eq!((error, flips), (ApplyError::NoSlot, 191));
    assert_eq!(index.retired_views(), 191);
    assert_eq!(hits(&index, &[3, 4]), (2, 0));
    drop(map);
    index.reclaim();
    assert_eq!(index.retired_views(), 0);
    let next = draft(&writer, true);
    assert_eq!(writer.publish(next, None), Ok(Publication::Flipped));
}

#[test]
fn every_stream_can_be_rebuilt_beside_its_view() {
    let index = PrefixIndex::new(spec(2));
    let mut writers: Vec<_> = (0..128)
        .map(|rank| index.add_stream(StreamKey::new("a", rank), 9).unwrap())
        .collect();
    for first in [true, false, true] {
        for writer in &mut writers {
            let next = draft(writer, first);
            assert_eq!(writer.publish(next, None), Ok(Publication::Flipped));
        }
        let matches = index.query_tokens(if first { &[1, 2] } else { &[3, 4] });
        assert!(matches.iter().all(|(_, hit)| hit.device_hit_tokens == 2));
    }
}

#[test]
fn a_retired_member_changes_nothing_any_more() {
    let (index, mut old) = one_stream(9);
    let first = draft(&old, true);
    old.publish(first, Some(Sequence(4))).unwrap();
    index.retire(old.member());
    assert!(index.query_tokens(&[1, 2]).is_empty(), "from that instant");

    let member = Member::new(StreamKey::new("a", 0), Some("another process".into()));
    let mut new = index.add_stream(member, 9).unwrap();
    let shown = || {
        let matches = index.query_tokens(&[1, 2]);
        let (row, hit) = matches.get(0).unwrap();
        let identity = row.identity().map(str::to_owned);
        (matches.len(), identity, row.error().to_owned(), hit)
    };
    let before = shown();
    assert_eq!(before.1.as_deref(), Some("another process"));
    assert!(!before.3.synchronized);
    // What is still queued for the old one: live events, a snapshot, an error, its end.
    let events = Events::default().store(Some(1), &[2], &[3, 4], Tier::Device);
    events.apply(&mut old).unwrap();
    let second = draft(&old, true);
    old.publish(second, Some(Sequence(5))).unwrap();
    assert_eq!(shown(), before);
    let third = draft(&new, true);
    new.publish(third, Some(Sequence(1))).unwrap();
    let published = shown();
    assert_eq!(published.3.device_hit_tokens, 2);
    old.unpublish("disconnected");
    assert_eq!(shown(), published);
    index.retire(old.member());
    drop(old);
    assert_eq!(shown(), published);
    assert_eq!(index.retired_views(), 0, "its slots are free again");
}
