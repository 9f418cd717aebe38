//! The tree's invariants, checked from the root down.

use std::collections::{HashMap, HashSet};

use super::editor::Editor;
use super::line::{TABLED, ones};
use super::shared_trie::ROOT;
use super::{BlockId, NONE};
use crate::index::slot_mask::Slot;
use crate::model::{ContentKey, WireHash};

impl Editor<'_> {
    /// Panics when something is wrong.
    pub(in crate::index) fn check(&self) {
        let mut seen = Seen::default();
        self.check_edge(ROOT, None, &mut seen);
        assert_eq!(seen.nodes.len(), self.own.node_numbers.in_use());
        let mut names: HashMap<WireHash, usize> = HashMap::new();
        let mut nameless = 0;
        for &block in &seen.blocks {
            let Some(wire) = self.first_name(BlockId(block)) else {
                nameless += 1;
                continue;
            };
            assert!(self.first_named(wire).any(|other| other.0 == block));
            *names.entry(wire).or_default() += 1;
        }
        assert_eq!(self.own.nameless, nameless);
        for (&wire, &count) in &names {
            assert_eq!(self.first_named(wire).count(), count, "{wire}");
        }
        let twins = names.values().map(|count| count - 1).sum::<usize>();
        assert_eq!(self.own.twins, twins);
        for (number, touched) in (0..).zip(&self.own.touched) {
            let slot = Slot::from_number(number).unwrap();
            let live = seen.live.get(&number).cloned().unwrap_or_default();
            assert_eq!(touched.live, live.len(), "slot {number}");
            let listed: HashSet<u32> = self.touched_nodes(slot).into_iter().collect();
            assert_eq!(listed, live, "slot {number}");
        }
    }

    fn check_edge(&self, edge: u32, parent: Option<(u32, ContentKey)>, seen: &mut Seen) {
        let info = *self.own.edges.get(edge);
        assert_eq!(info.owner, parent.map_or(NONE, |(owner, _)| owner));
        let children: Vec<u32> = self.children_of(edge).collect();
        assert_eq!(children.len(), info.children as usize);
        let mut firsts = HashSet::new();
        let mut previous = NONE;
        for &child in &children {
            let node = *self.own.nodes.get(child);
            assert_eq!((node.parent_edge, node.previous), (edge, previous));
            previous = child;
            let line = self.line_of(child);
            let first = self.visible.hash(line.extent().0);
            assert!(firsts.insert(first), "two children begin alike");
            assert_eq!(self.child(edge, first), Some(child));
            self.check_node(child, parent, seen);
        }
        if let Some((owner, _)) = parent {
            let expected = match &children[..] {
                _ if info.tabled => TABLED,
                [] => NONE,
                [only] => self.own.nodes.get(*only).line,
                _ => panic!("several children without a table"),
            };
            assert_eq!(self.line_of(owner).child(), (expected, edge));
        }
    }

    fn check_node(&self, node: u32, parent: Option<(u32, ContentKey)>, seen: &mut Seen) {
        assert!(seen.nodes.insert(node));
        let info = *self.own.nodes.get(node);
        assert!(seen.lines.insert(info.line));
        let line = self.line_of(node);
        let (base, len) = line.extent();
        assert!(len > 0 && len <= info.reserved && base / 64 == (base + info.reserved - 1) / 64);
        assert_eq!((line.node(), line.parent_edge()), (node, info.parent_edge));
        for id in base..base + info.reserved {
            assert!(seen.ids.insert(id), "two runs share an id");
        }
        for id in base..base + len {
            assert_eq!(self.own.node_of.get(id), node);
            seen.blocks.push(id);
        }
        let key = (base..base + len).fold(parent.map(|(_, key)| key), |key, id| {
            Some(self.own.hasher.key(key, self.visible.hash(id)))
        });
        assert_eq!(Some(line.last_key()), key);
        let holdings = self.holdings(line);
        assert!(!holdings.is_empty(), "nobody knows the run");
        let mut slots = HashSet::new();
        for (slot, holding) in &holdings {
            assert!(slots.insert(slot.number()), "two records of one slot");
            assert_eq!(self.holding(*slot, node), *holding);
            assert!(holding.known <= len && holding.resident() & !ones(holding.known) == 0);
            seen.live.entry(slot.number()).or_default().insert(node);
            if let Some((parent, _)) = parent {
                let (_, parent_len) = self.line_of(parent).extent();
                assert_eq!(
                    self.holding(*slot, parent).known,
                    parent_len,
                    "known without its parent"
                );
            }
        }
        let longest = holdings.iter().map(|(_, holding)| holding.known).max();
        assert!(
            longest.is_some_and(|known| known * 2 >= len),
            "mostly forgotten: {holdings:?}"
        );
        if info.edge != NONE {
            self.check_edge(info.edge, key.map(|key| (node, key)), seen);
        }
    }
}

#[derive(Default)]
struct Seen {
    nodes: HashSet<u32>,
    lines: HashSet<u32>,
    /// Reserved ones too.
    ids: HashSet<u32>,
    blocks: Vec<u32>,
    live: HashMap<u8, HashSet<u32>>,
}
