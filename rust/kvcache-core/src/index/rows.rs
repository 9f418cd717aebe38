//! The rows of an answer, and where an answer's counts for each are.

use super::row::Row;
use super::view::ViewStats;

/// Streams in the order of answers. Immutable, and shared by the answers that show it.
#[derive(Debug)]
pub(super) struct Rows {
    rows: Box<[Row]>,
    /// By row: the place of its counts.
    places: Box<[u32]>,
}

impl Rows {
    /// Places are the slots of the rows' views; a row without a view has the place behind all of those.
    pub(super) fn new(rows: &[Row]) -> Self {
        let slots = || rows.iter().map(|row| row.view().map(slot_number));
        let behind = slots().flatten().max().map_or(0, |last| last + 1);
        Self {
            rows: rows.into(),
            places: slots().map(|slot| slot.unwrap_or(behind)).collect(),
        }
    }

    /// Each row has its own position for its place.
    pub(super) fn in_order(rows: Vec<Row>) -> Self {
        let places = (0..).take(rows.len()).collect();
        Self {
            rows: rows.into(),
            places,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn get(&self, position: usize) -> Option<&Row> {
        self.rows.get(position)
    }

    /// Where the counts of the row are.
    #[inline]
    pub(super) fn place(&self, position: usize) -> Option<usize> {
        self.places
            .get(position)
            .copied()
            .map(|place| place as usize)
    }

    /// By row.
    #[inline]
    pub(super) fn places(&self) -> impl ExactSizeIterator<Item = usize> {
        self.places.iter().copied().map(|place| place as usize)
    }
}

fn slot_number(view: &ViewStats) -> u32 {
    view.slot().number().into()
}
