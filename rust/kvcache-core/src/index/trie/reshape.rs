//! The shape of the tree: runs are hung, split, lengthened, cut and taken down.
//!
//! A line's shape never changes while it can be reached. Each operation writes new lines in full, then
//! swaps the link that leads to the old one, then retires that.

use super::block_ids::Extent;
use super::editor::{Editor, fresh};
use super::garbage::Piece;
use super::line::{Holding, Line, Shape, TABLED, halves, ones};
use super::shared_trie::{Edge, Node, ROOT, Workshop};
use super::{BlockId, NONE};
use crate::index::slot_mask::Slot;
use crate::model::{BlockHash, ContentKey, Tier};

impl Editor<'_> {
    /// The child of `edge` that begins with `first`.
    #[inline]
    pub(super) fn child(&self, edge: u32, first: BlockHash) -> Option<u32> {
        if edge == NONE {
            return None;
        }
        let Edge {
            tabled,
            first_child,
            ..
        } = *self.own.edges.get(edge);
        let begins = |line: &Line| self.visible.is_block(line.extent().0, first);
        if tabled {
            let spot = self.visible.children.spot(edge, halves(first.0).0);
            self.visible.children.find(spot, |line| {
                let line = self.visible.lines.get(line);
                (line.parent_edge() == edge && begins(line)).then(|| line.node())
            })
        } else {
            (first_child != NONE && begins(self.line_of(first_child))).then_some(first_child)
        }
    }

    pub(super) fn children_of(&self, edge: u32) -> impl Iterator<Item = u32> {
        let first = if edge == NONE {
            NONE
        } else {
            self.own.edges.get(edge).first_child
        };
        let node = |node: u32| (node != NONE).then_some(node);
        std::iter::successors(node(first), move |child| {
            node(self.own.nodes.get(*child).next)
        })
    }

    /// Where children of `end` hang; its run is split if it goes on.
    pub(super) fn edge_below(&mut self, end: Option<BlockId>) -> u32 {
        let Some(end) = end else { return ROOT };
        let (node, place) = self.locate(end);
        if place + 1 < self.line_of(node).extent().1 {
            if self.is_leaf(node) && self.known_by_any(node) <= place + 1 {
                self.cut(node, place + 1);
            } else {
                self.split(node, place + 1);
            }
        }
        let edge = self.own.nodes.get(node).edge;
        if edge != NONE {
            return edge;
        }
        let edge = self.new_edge(node);
        self.own.nodes.get_mut(node).edge = edge;
        self.line_of(node).set_child(NONE, edge);
        edge
    }

    fn new_edge(&mut self, owner: u32) -> u32 {
        let edge = self.own.edge_numbers.take();
        self.own.edges.reach(edge);
        *self.own.edges.get_mut(edge) = Edge {
            owner,
            ..Edge::default()
        };
        edge
    }

    pub(super) fn new_node(&mut self, reserved: u32) -> u32 {
        let node = self.own.node_numbers.take();
        self.own.nodes.reach(node);
        *self.own.nodes.get_mut(node) = Node {
            reserved,
            ..Node::default()
        };
        node
    }

    /// The shape of a leaf.
    pub(super) fn shape(
        &self,
        node: u32,
        (base, len): (u32, u32),
        parent_edge: u32,
        last_key: ContentKey,
    ) -> Shape {
        Shape {
            base,
            len,
            child: NONE,
            edge: NONE,
            parent_edge,
            node,
            first_hash: halves(self.visible.hash(base).0).0,
            last_key,
        }
    }

    /// Gives ids to a node.
    pub(super) fn own_ids(&mut self, extent: Extent, node: u32) {
        let Workshop { node_of, nodes, .. } = &mut *self.own;
        let visible = self.visible;
        node_of.set(extent, node, |node| {
            let Node { line, reserved, .. } = *nodes.get(node);
            let (base, _) = visible.lines.get(line).extent();
            Extent {
                base,
                len: reserved,
            }
        });
    }

    /// Takes ids from their node, until nobody can see their blocks.
    fn disown_ids(&mut self, extent: Extent, is_all: bool) {
        self.own.node_of.clear(extent, is_all);
        self.own.garbage.push(Piece::Blocks(extent));
    }

    pub(super) fn new_line(&mut self, shape: &Shape) -> u32 {
        let number = self.own.line_numbers.take();
        self.visible.lines.get(number).write(shape);
        number
    }

    /// Lets readers reach a node, whose line is complete, by `edge`.
    pub(super) fn hang(&mut self, node: u32, edge: u32) {
        let Edge {
            owner,
            first_child,
            tabled,
            ..
        } = *self.own.edges.get(edge);
        if first_child != NONE {
            self.own.nodes.get_mut(first_child).previous = node;
        }
        let info = self.own.nodes.get_mut(node);
        (info.parent_edge, info.previous, info.next) = (edge, NONE, first_child);
        let line = info.line;
        let record = self.own.edges.get_mut(edge);
        record.first_child = node;
        record.children += 1;
        if !tabled && first_child == NONE {
            self.line_of(owner).set_child(line, edge);
            return;
        }
        record.tabled = true;
        if !tabled {
            self.tabulate(edge, self.own.nodes.get(first_child).line);
        }
        self.tabulate(edge, line);
        if !tabled {
            self.line_of(owner).set_child(TABLED, edge);
        }
    }

    fn tabulate(&mut self, edge: u32, line: u32) {
        let first = self.visible.lines.get(line).first_hash();
        let children = &self.visible.children;
        let old = children.insert(&mut self.own.children, edge, first, line);
        self.own.garbage.extend(old.map(Piece::Table));
    }

    /// Gives a node a new line in place of its old one, for readers too.
    fn relink(&mut self, node: u32, new: u32) {
        let info = self.own.nodes.get_mut(node);
        let old = std::mem::replace(&mut info.line, new);
        let edge = info.parent_edge;
        let Edge { owner, tabled, .. } = *self.own.edges.get(edge);
        if tabled {
            let first = self.visible.lines.get(new).first_hash();
            self.visible.children.replace(edge, first, old, new);
        } else {
            self.line_of(owner).set_child(new, edge);
        }
        self.retire_records(old);
        self.own.garbage.push(Piece::Line(old));
    }

    /// Cuts a run in two; the blocks from `place` on become a child with the children.
    fn split(&mut self, node: u32, place: u32) {
        let old = self.line_of(node);
        let (base, len) = old.extent();
        let (child, edge) = old.child();
        let tail_key = old.last_key();
        let parent_edge = old.parent_edge();
        let holdings = self.holdings(old);
        let head_key = self.key_of(BlockId(base + place - 1));
        let reserved = self.own.nodes.get(node).reserved;
        let tail = self.new_node(reserved - place);
        let tail_edge = self.new_edge(node);

        let mut shape = self.shape(tail, (base + place, len - place), tail_edge, tail_key);
        (shape.child, shape.edge) = (child, edge);
        let tail_line = self.new_line(&shape);
        let mut shape = self.shape(node, (base, place), parent_edge, head_key);
        (shape.child, shape.edge) = (tail_line, tail_edge);
        let head_line = self.new_line(&shape);

        for (slot, holding) in holdings {
            self.write_holding(head_line, slot, holding.part(0, place));
            let rest = holding.part(place, len - place);
            if rest.known > 0 {
                self.write_holding(tail_line, slot, rest);
                self.own.touched[slot.index()].nodes.push(tail);
                self.own.touched[slot.index()].live += 1;
            }
        }
        let extent = Extent {
            base: base + place,
            len: reserved - place,
        };
        self.own_ids(extent, tail);
        let info = self.own.nodes.get_mut(tail);
        (info.line, info.edge, info.parent_edge) = (tail_line, edge, tail_edge);
        if edge != NONE {
            self.own.edges.get_mut(edge).owner = tail;
        }
        let record = self.own.edges.get_mut(tail_edge);
        (record.first_child, record.children) = (tail, 1);
        let info = self.own.nodes.get_mut(node);
        (info.edge, info.reserved) = (tail_edge, place);
        self.relink(node, head_line);
        self.tidy(tail);
    }

    /// Says of a line that nobody can reach yet what a slot has of it.
    fn write_holding(&mut self, line: u32, slot: Slot, holding: Holding) {
        let (_, len) = self.visible.lines.get(line).extent();
        if !holding.is_plain(len) {
            let number = self.own.record_numbers.take();
            let line = self.visible.lines.get(line);
            self.visible
                .records
                .get(number)
                .write(slot, line.records(), holding);
            line.set_records(number);
        }
        for tier in [Tier::Device, Tier::Host] {
            if holding.copies[tier as usize] == ones(len) {
                self.visible.lines.get(line).set(tier, slot, true);
            }
        }
    }

    /// Adds `count` blocks to a leaf that only `slot` knows, after its last block `end`.
    pub(super) fn lengthen(
        &mut self,
        slot: Slot,
        end: u32,
        count: u32,
        tier: Option<Tier>,
        last_key: ContentKey,
    ) {
        let node = self.own.node_of.get(end);
        let old = self.line_of(node);
        let (base, len) = old.extent();
        let (child, edge) = old.child();
        let mut shape = self.shape(node, (base, len + count), old.parent_edge(), last_key);
        (shape.child, shape.edge) = (child, edge);
        let mut holding = self.holding(slot, node);
        let added = fresh(count, tier);
        holding.known += added.known;
        for (copies, added) in holding.copies.iter_mut().zip(added.copies) {
            *copies |= added << len;
        }
        let line = self.new_line(&shape);
        self.write_holding(line, slot, holding);
        self.relink(node, line);
    }

    /// After somebody forgot something of a node: takes down what nobody knows.
    pub(super) fn tidy(&mut self, node: u32) {
        let mut node = node;
        loop {
            let line = self.line_of(node);
            if !self.is_leaf(node) {
                return;
            }
            let known = self.known_by_any(node);
            if known > 0 {
                let (_, len) = line.extent();
                if (len - known) * 2 > len {
                    self.cut(node, known);
                }
                return;
            }
            let owner = self
                .own
                .edges
                .get(self.own.nodes.get(node).parent_edge)
                .owner;
            self.take_down(node);
            if owner == NONE {
                return;
            }
            node = owner;
        }
    }

    fn is_leaf(&self, node: u32) -> bool {
        let edge = self.own.nodes.get(node).edge;
        edge == NONE || self.own.edges.get(edge).children == 0
    }

    /// Takes a leaf's blocks from `known`, at least 1, on away, which nobody knows.
    fn cut(&mut self, node: u32, known: u32) {
        let line = self.line_of(node);
        let (base, len) = line.extent();
        let holdings = self.holdings(line);
        let (child, edge) = line.child();
        let parent_edge = line.parent_edge();
        let last_key = self.key_of(BlockId(base + known - 1));
        let mut shape = self.shape(node, (base, known), parent_edge, last_key);
        (shape.child, shape.edge) = (child, edge);
        let new = self.new_line(&shape);
        for (slot, holding) in holdings {
            self.write_holding(new, slot, holding);
        }
        self.relink(node, new);
        self.unname_all(Extent {
            base: base + known,
            len: len - known,
        });
        let info = self.own.nodes.get_mut(node);
        let reserved = std::mem::replace(&mut info.reserved, known);
        let tail = Extent {
            base: base + known,
            len: reserved - known,
        };
        self.disown_ids(tail, false);
    }

    /// Takes down a leaf that nobody knows.
    fn take_down(&mut self, node: u32) {
        let info = *self.own.nodes.get(node);
        let line = self.visible.lines.get(info.line);
        let (base, len) = line.extent();
        let Edge { owner, tabled, .. } = *self.own.edges.get(info.parent_edge);
        if tabled {
            let (edge, first) = (info.parent_edge, line.first_hash());
            let children = &self.visible.children;
            let old = children.remove(&mut self.own.children, edge, first, info.line);
            self.own.garbage.extend(old.map(Piece::Table));
        } else {
            self.line_of(owner).set_child(NONE, info.parent_edge);
        }
        if info.previous == NONE {
            self.own.edges.get_mut(info.parent_edge).first_child = info.next;
        } else {
            self.own.nodes.get_mut(info.previous).next = info.next;
        }
        if info.next != NONE {
            self.own.nodes.get_mut(info.next).previous = info.previous;
        }
        self.own.edges.get_mut(info.parent_edge).children -= 1;
        self.unname_all(Extent { base, len });
        self.retire_records(info.line);
        self.own.garbage.push(Piece::Line(info.line));
        let whole = Extent {
            base,
            len: info.reserved,
        };
        self.disown_ids(whole, true);
        if info.edge != NONE {
            self.own.garbage.push(Piece::Edge(info.edge));
        }
        *self.own.nodes.get_mut(node) = Node::default();
        self.own.node_numbers.give(node);
    }
}
