//! One test a rule (spec: content keys, a stream's life, query).

use super::{Events, hit, hits, one_stream, published, spec};
use crate::hash::BlockKeys;
use crate::index::{IndexError, Matches, Origin, PrefixIndex};
use crate::model::{ApplyError, Sequence, StreamKey, Tier, WireHash};

use Tier::{Device, Host};

#[test]
fn a_prompt_is_walked_to_the_first_hole() {
    let (index, mut writer) = one_stream(100);
    let tokens = [1, 2, 3, 4, 5, 6];
    let stored = Events::default().store(None, &[1, 2, 3], &tokens, Device);
    assert_eq!(stored.apply(&mut writer).unwrap().stored, 3);
    assert_eq!(hits(&index, &[1, 2, 3, 4, 5, 6, 7]), (6, 0));
    assert_eq!(hits(&index, &[1, 2, 9, 9, 5, 6]), (2, 0));
    assert_eq!(hits(&index, &[3, 4]), (0, 0));
    let removed = Events::default().remove(&[2], Some(Device));
    assert_eq!(removed.apply(&mut writer).unwrap().removed, 1);
    assert_eq!(hits(&index, &tokens), (2, 0));
    // Block 3 was there all the time, and counts again once block 2 is back.
    let host = Events::default().store(None, &[2], &[], Host);
    host.apply(&mut writer).unwrap();
    assert_eq!(hits(&index, &tokens), (4, 2));
}

#[test]
fn tiers_are_apart() {
    let (index, mut writer) = one_stream(100);
    let both = Events::default()
        .store(None, &[1], &[1, 2], Device)
        .store(None, &[1], &[], Host);
    assert_eq!(both.apply(&mut writer).unwrap().stored, 2);
    let counted = hit(&index.query_tokens(&[]), 0);
    assert_eq!((counted.device_blocks, counted.host_blocks), (1, 1));
    Events::default()
        .remove(&[1], Some(Device))
        .apply(&mut writer)
        .unwrap();
    assert_eq!(hits(&index, &[1, 2]), (0, 2));
    Events::default()
        .remove(&[1], Some(Host))
        .apply(&mut writer)
        .unwrap();
    assert_eq!(hits(&index, &[1, 2]), (0, 0));
    assert_eq!(writer.counts().known, 1);
}

#[test]
fn a_tier_that_is_not_counted_makes_a_block_known() {
    let (index, mut writer) = one_stream(100);
    let events = Events::default()
        .store_elsewhere(None, &[1], &[1, 2])
        .store(Some(1), &[2], &[3, 4], Device)
        .remove(&[2], None);
    let report = events.apply(&mut writer).unwrap();
    assert_eq!((report.other_tier, report.stored), (2, 1));
    assert_eq!(hits(&index, &[1, 2, 3, 4]), (0, 0));
    let copy = Events::default().store(None, &[1], &[], Host);
    copy.apply(&mut writer).unwrap();
    assert_eq!(hits(&index, &[1, 2, 3, 4]), (2, 2));
}

#[test]
fn removals_of_what_is_not_there_are_counted() {
    let (index, mut writer) = one_stream(100);
    let events = Events::default()
        .remove(&[42], Some(Device))
        .store(None, &[42], &[1, 2], Device)
        .remove(&[42, 42, 43], Some(Device));
    let report = events.apply(&mut writer).unwrap();
    assert_eq!(
        (report.stored, report.removed, report.already_removed),
        (1, 1, 3)
    );
    assert_eq!(hits(&index, &[1, 2]), (0, 0));
    assert_eq!(writer.counts().device_blocks, 0);
}

#[test]
fn two_names_of_one_content_are_one_block() {
    let (index, mut writer) = one_stream(100);
    let events =
        Events::default()
            .store(None, &[1], &[1, 2], Device)
            .store(None, &[0], &[1, 2], Device);
    let report = events.apply(&mut writer).unwrap();
    assert_eq!((report.stored, report.already_stored), (1, 1));
    let counts = writer.counts();
    assert_eq!((counts.device_blocks, counts.known), (1, 2));
    // A copy is an element of a set: the first removal takes it, by whatever name.
    Events::default()
        .remove(&[0], Some(Device))
        .apply(&mut writer)
        .unwrap();
    assert_eq!(hits(&index, &[1, 2]), (0, 0));
}

#[test]
fn one_name_of_two_contents_changes_nothing() {
    let (index, mut writer) = one_stream(100);
    Events::default()
        .store(None, &[1], &[1, 2], Device)
        .apply(&mut writer)
        .unwrap();
    let before = writer.counts();
    let conflict = Err(ApplyError::Conflict(WireHash(1)));
    let other = Events::default().store(None, &[7, 1], &[1, 2, 3, 4], Device);
    assert_eq!(other.apply(&mut writer), conflict);
    let within = Events::default().store(None, &[8, 8], &[5, 6, 7, 8], Device);
    assert_eq!(
        within.apply(&mut writer),
        Err(ApplyError::Conflict(WireHash(8)))
    );
    assert_eq!(writer.counts(), before);
    assert_eq!(hits(&index, &[5, 6]), (0, 0));
}

#[test]
fn a_live_event_must_know_what_it_refers_to() {
    let (_index, mut writer) = one_stream(100);
    let child = Events::default().store(Some(1), &[2], &[3, 4], Device);
    assert_eq!(
        child.apply(&mut writer),
        Err(ApplyError::UnknownParent(WireHash(1)))
    );
    let copy = Events::default().store(None, &[1], &[], Host);
    assert_eq!(
        copy.apply(&mut writer),
        Err(ApplyError::UnknownTokenless(WireHash(1)))
    );
    let shape = Events::default().store(None, &[1, 2], &[1, 2, 3], Device);
    let expected = ApplyError::Shape {
        tokens: 3,
        blocks: 2,
        block_size_tokens: 2,
    };
    assert_eq!(shape.apply(&mut writer), Err(expected));
    assert_eq!(writer.counts().known, 0);
}

#[test]
fn orphans_of_a_snapshot_are_remembered_and_count_as_nothing() {
    let (index, mut writer) = one_stream(100);
    let mut draft = writer.new_draft();
    let snapshot = Events::default()
        .store(None, &[1, 2], &[1, 2, 3, 4], Device)
        .store(Some(8), &[9], &[5, 6], Device)
        .store(Some(9), &[10], &[7, 8], Host);
    let report = snapshot.draft(&mut draft, Origin::Snapshot).unwrap();
    assert_eq!((report.stored, report.orphaned), (2, 2));
    writer.publish(draft, Some(Sequence(5))).unwrap();
    assert_eq!(hits(&index, &[1, 2, 3, 4]), (4, 0));
    assert_eq!((writer.counts().known, writer.counts().orphans), (2, 2));
    let below = Events::default()
        .store(Some(10), &[11], &[1, 1], Device)
        .store(None, &[9], &[], Host);
    assert_eq!(below.apply(&mut writer).unwrap().orphaned, 2);
    assert_eq!(writer.counts().orphans, 3);
    let healed = Events::default().store(Some(2), &[9], &[5, 6], Device);
    assert_eq!(healed.apply(&mut writer).unwrap().stored, 1);
    assert_eq!((writer.counts().known, writer.counts().orphans), (3, 2));
    assert_eq!(hits(&index, &[1, 2, 3, 4, 5, 6]), (6, 0));
}

#[test]
fn the_longest_non_resident_leaf_goes_first() {
    let (_index, mut writer) = one_stream(3);
    let events = Events::default()
        .store(None, &[1, 2], &[1, 2, 3, 4], Device)
        .store(None, &[3], &[5, 6], Device)
        .remove(&[1, 3, 2], Some(Device))
        .store(None, &[4], &[7, 8], Device);
    events.apply(&mut writer).unwrap();
    // 1 is older but has a child; 3 went before 2.
    let unknown = Events::default().store(None, &[3], &[], Device);
    assert_eq!(
        unknown.apply(&mut writer),
        Err(ApplyError::UnknownTokenless(WireHash(3)))
    );
    let again = Events::default().store(None, &[2], &[], Device);
    assert_eq!(again.apply(&mut writer).unwrap().stored, 1);
}

#[test]
fn resident_blocks_and_their_ancestors_may_exceed_the_limit_never() {
    let (index, mut writer) = one_stream(2);
    let chain = Events::default()
        .store(None, &[1, 2], &[1, 2, 3, 4], Device)
        .remove(&[1], Some(Device));
    chain.apply(&mut writer).unwrap();
    let third = Events::default().store(None, &[3], &[5, 6], Device);
    assert_eq!(third.apply(&mut writer), Err(ApplyError::Limit(2)));
    assert_eq!((writer.counts().known, hits(&index, &[5, 6])), (2, (0, 0)));
    // Without its descendant the ancestor may go too, one after the other.
    Events::default()
        .remove(&[2], Some(Device))
        .apply(&mut writer)
        .unwrap();
    let two = Events::default().store(None, &[3, 4], &[5, 6, 7, 8], Device);
    assert_eq!(two.apply(&mut writer).unwrap().stored, 2);
    assert_eq!(hits(&index, &[5, 6, 7, 8]), (4, 0));
}

#[test]
fn the_parent_of_an_event_stays_while_it_is_applied() {
    let (_index, mut writer) = one_stream(1);
    Events::default()
        .store_elsewhere(None, &[1], &[1, 2])
        .apply(&mut writer)
        .unwrap();
    let child = Events::default().store(Some(1), &[2], &[3, 4], Device);
    assert_eq!(child.apply(&mut writer), Err(ApplyError::Limit(1)));
    assert_eq!(writer.counts().known, 1);
}

#[test]
fn an_orphan_without_room_is_not_remembered() {
    let (_index, writer) = one_stream(2);
    let mut draft = writer.new_draft();
    let snapshot = Events::default().store(None, &[1], &[1, 2], Device).store(
        Some(8),
        &[9, 10, 11],
        &[1, 2, 3, 4, 5, 6],
        Device,
    );
    assert_eq!(
        snapshot
            .draft(&mut draft, Origin::Snapshot)
            .unwrap()
            .orphaned,
        3
    );
    assert_eq!((draft.counts().known, draft.counts().orphans), (1, 1));
}

#[test]
fn a_clear_in_the_middle_of_a_batch_clears_in_place() {
    let (index, mut writer) = one_stream(100);
    let events = Events::default()
        .store(None, &[1], &[1, 2], Device)
        .clear()
        .store(None, &[1], &[5, 6], Host);
    let report = events.apply(&mut writer).unwrap();
    assert_eq!((report.stored, report.removed), (2, 1));
    assert_eq!(hits(&index, &[1, 2]), (0, 0));
    assert_eq!(hits(&index, &[5, 6]), (0, 2));
    assert_eq!(writer.counts().known, 1);
}

#[test]
fn rows_are_in_order_and_merge_in_order() {
    let indexes = [PrefixIndex::new(spec(2)), PrefixIndex::new(spec(1))];
    let mut writers = [
        published(&indexes[0], "c", 9),
        published(&indexes[0], "a", 9),
    ];
    let mut other = published(&indexes[1], "b", 9);
    for writer in &mut writers {
        Events::default()
            .store(None, &[1], &[1, 2], Device)
            .apply(writer)
            .unwrap();
    }
    Events::default()
        .store(None, &[1], &[1], Host)
        .apply(&mut other)
        .unwrap();
    let merged = Matches::merge(indexes.iter().map(|index| index.query_tokens(&[1, 2])));
    let got: Vec<_> = merged
        .iter()
        .map(|(row, hit)| {
            (
                &*row.key().instance_name,
                hit.device_hit_tokens,
                hit.host_only_hit_tokens,
            )
        })
        .collect();
    assert_eq!(got, [("a", 2, 0), ("b", 0, 1), ("c", 2, 0)]);
}

#[test]
fn the_index_refuses_what_it_cannot_hold() {
    let index = PrefixIndex::new(spec(2));
    let key = |rank| StreamKey::new("a", rank);
    let writers: Vec<_> = (0..128)
        .map(|rank| index.add_stream(key(rank), 9).unwrap())
        .collect();
    let duplicate = index.add_stream(key(5), 9).unwrap_err();
    assert_eq!(duplicate, IndexError::DuplicateStream(key(5)));
    let too_many = index.add_stream(key(128), 9).unwrap_err();
    assert_eq!(
        too_many.to_string(),
        "an index holds 128 streams at most, no room for: a#128"
    );
    drop(writers);
    index.add_stream(key(5), 9).unwrap();
    let foreign = BlockKeys::compute(&[1, 2], spec(1));
    assert!(matches!(
        index.query_keys(&foreign),
        Err(IndexError::SpecMismatch { .. })
    ));
}

#[test]
fn a_calibration_keeps_the_names_of_blocks_without_copies() {
    let (index, mut writer) = one_stream(4);
    // 1 ← 2 ← 3, and 4 by itself; then 2 and 3 are evicted, 3 first.
    Events::default()
        .store(None, &[1, 2, 3], &[1, 1, 2, 2, 3, 3], Device)
        .store(None, &[4], &[4, 4], Device)
        .remove(&[3, 2], Some(Device))
        .apply(&mut writer)
        .unwrap();
    // The snapshot shows that the removal of 4 was lost.
    let mut draft = writer.new_draft();
    let snapshot = Events::default().store(None, &[1], &[1, 1], Device);
    snapshot.draft(&mut draft, Origin::Snapshot).unwrap();
    writer.publish(draft, None).unwrap();
    assert_eq!(writer.counts().known, 4);
    // Block 3 goes: of those that nobody descends from it has been without a copy longest. Then 2, its parent.
    let new = Events::default().store(None, &[5], &[5, 5], Device);
    new.apply(&mut writer).unwrap();
    let copies = Events::default().store(None, &[2, 4], &[], Host);
    copies.apply(&mut writer).unwrap();
    assert_eq!(hits(&index, &[1, 1, 2, 2]), (2, 2));
    assert_eq!(hits(&index, &[4, 4]), (0, 2));
    let copy = Events::default().store(None, &[3], &[], Host);
    assert_eq!(
        copy.apply(&mut writer),
        Err(ApplyError::UnknownTokenless(WireHash(3)))
    );
}

#[test]
fn a_calibration_keeps_no_name_that_the_snapshot_uses() {
    let (index, mut writer) = one_stream(100);
    Events::default()
        .store(None, &[1, 2, 3], &[1, 1, 2, 2, 3, 3], Device)
        .apply(&mut writer)
        .unwrap();
    let mut draft = writer.new_draft();
    // 1 names another content now, 2 is an orphan; 3 descends from it.
    let snapshot =
        Events::default()
            .store(None, &[1], &[9, 9], Device)
            .store(Some(7), &[2], &[2, 2], Device);
    snapshot.draft(&mut draft, Origin::Snapshot).unwrap();
    writer.publish(draft, None).unwrap();
    let counts = writer.counts();
    assert_eq!((counts.known, counts.orphans), (1, 1));
    assert_eq!(hits(&index, &[9, 9]), (2, 0));
}

#[test]
fn what_was_known_before_a_doubt_is_forgotten() {
    let (_, mut writer) = one_stream(100);
    let stored = Events::default().store(None, &[1], &[1, 1], Device);
    stored.apply(&mut writer).unwrap();
    writer.unpublish("restarted");
    let draft = writer.new_draft();
    writer.publish(draft, None).unwrap();
    assert_eq!(writer.counts().known, 0);
}

#[test]
fn a_block_gets_its_first_name_from_streams_that_share_names() {
    let (index, mut sharing) = one_stream(100);
    let tokens = [1, 1, 2, 2, 3, 3, 4, 4, 5, 5];
    let stored = Events::default().store(None, &[1, 2, 3], &tokens[..6], Device);
    stored.apply(&mut sharing).unwrap();
    // Names of its own for all that it shares: from now on it keeps all of its names to itself.
    let mut private = published(&index, "b", 100);
    Events::default()
        .store(None, &[11, 12, 13], &tokens[..6], Device)
        .store(Some(13), &[14, 15], &tokens[6..], Device)
        .apply(&mut private)
        .unwrap();
    let mut third = published(&index, "c", 100);
    for stream in [&mut sharing, &mut third] {
        Events::default()
            .store(None, &[1, 2, 3, 4, 5], &tokens, Device)
            .remove(&[5], Some(Device))
            .apply(stream)
            .unwrap();
    }
    let again = Events::default().store(Some(4), &[5], &tokens[8..], Device);
    again.apply(&mut third).unwrap();
    let removed = Events::default().remove(&[5, 4, 15], Some(Device));
    assert_eq!(removed.apply(&mut private).unwrap().removed, 1);
    let matches = index.query_tokens(&tokens);
    let device = [0, 1, 2].map(|row| hit(&matches, row).device_hit_tokens);
    assert_eq!(device, [8, 8, 10]);
    let mut plain = published(&index, "d", 100);
    let stored = Events::default().store(None, &[1, 2, 3, 4, 5], &tokens, Device);
    stored.apply(&mut plain).unwrap();
    assert_eq!(plain.memory_bytes(), 0, "its names are first names");
}
