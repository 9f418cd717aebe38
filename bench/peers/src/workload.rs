//! Workload W1 as `bench/w1.py` wrote it; the format is described there.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

const MAGIC: &[u8] = b"KVC-W1/1";

/// A prompt, and the published hashes of its full blocks.
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    pub tokens: Vec<u32>,
    /// XXH3-64 of each block's own tokens.
    pub local: Vec<u64>,
    /// XXH3-64 of the chain up to each block.
    pub chained: Vec<u64>,
}

/// Consecutive blocks of one sequence, stored in or removed from one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub worker: u32,
    pub sequence: usize,
    pub first: usize,
    pub blocks: usize,
}

impl Span {
    /// The blocks, by their place in the sequence.
    #[must_use]
    pub fn range(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.blocks
    }
}

/// Worker to leading blocks held; who holds none is left out.
pub type Scores = BTreeMap<u32, u32>;

#[derive(Clone, Debug)]
pub struct Query {
    pub prompt: Prompt,
    pub answer: Scores,
}

#[derive(Clone, Debug, Default)]
pub struct Workload {
    pub block_size: u32,
    pub workers: u32,
    pub sequences: Vec<Prompt>,
    pub stores: Vec<Span>,
    /// To be applied last first.
    pub removes: Vec<Span>,
    pub queries: Vec<Query>,
    /// Whether each engine has hashes of its own.
    pub private_wires: bool,
}

impl Workload {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, or one of another format.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path)
            .with_context(|| format!("cannot read {}: run bench/w1.py", path.display()))?;
        let rest = bytes.strip_prefix(MAGIC);
        let rest = rest.with_context(|| {
            format!(
                "not a W1 file, delete it and run bench/w1.py: {}",
                path.display()
            )
        })?;
        read(&mut Reader { rest }).with_context(|| format!("in {}", path.display()))
    }

    /// (worker, block) pairs after all stores.
    #[must_use]
    pub fn entries(&self) -> usize {
        blocks(&self.stores)
    }

    /// The name that `worker` gives to the block called `chained` in the file.
    #[must_use]
    pub fn wire(&self, worker: u32, chained: u64) -> u64 {
        if self.private_wires {
            mix(chained ^ (u64::from(worker) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        } else {
            chained
        }
    }

    /// The wire hashes of a span's blocks.
    #[must_use]
    pub fn wires(&self, span: &Span) -> impl DoubleEndedIterator<Item = u64> {
        let chained = &self.sequences[span.sequence].chained[span.range()];
        chained.iter().map(|hash| self.wire(span.worker, *hash))
    }

    /// The wire hash of the block before a span's first.
    #[must_use]
    pub fn parent(&self, span: &Span) -> Option<u64> {
        let before = span.first.checked_sub(1)?;
        Some(self.wire(span.worker, self.sequences[span.sequence].chained[before]))
    }

    /// The tokens of a span's blocks.
    #[must_use]
    pub fn tokens(&self, span: &Span) -> &[u32] {
        let size = self.block_size as usize;
        let blocks = span.range();
        &self.sequences[span.sequence].tokens[blocks.start * size..blocks.end * size]
    }
}

/// Blocks in all `spans`.
#[must_use]
pub fn blocks(spans: &[Span]) -> usize {
    spans.iter().map(|span| span.blocks).sum()
}

/// A bijection (that of `SplitMix64`), so that private names never collide within a worker.
fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

fn read(reader: &mut Reader<'_>) -> Result<Workload> {
    let [block_size, workers, entries] = [reader.u64()?, reader.u64()?, reader.u64()?];
    let sequences = reader.prompts()?;
    let stores = reader.spans()?;
    let removes = reader.spans()?;
    let prompts = reader.prompts()?;
    let answers = reader.answers()?;
    ensure!(prompts.len() == answers.len(), "queries without answers");
    let queries = prompts.into_iter().zip(answers);
    let workload = Workload {
        block_size: u32::try_from(block_size)?,
        workers: u32::try_from(workers)?,
        sequences,
        stores,
        removes,
        queries: queries
            .map(|(prompt, answer)| Query { prompt, answer })
            .collect(),
        private_wires: false,
    };
    ensure!(
        workload.entries() as u64 == entries,
        "stores do not add up to the entries"
    );
    Ok(workload)
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn u64(&mut self) -> Result<u64> {
        let (value, rest) = self.rest.split_first_chunk().context("cut short")?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*value))
    }

    fn array<const BYTES: usize, T>(&mut self, item: impl Fn([u8; BYTES]) -> T) -> Result<Vec<T>> {
        let count = usize::try_from(self.u64()?)?;
        let size = count.checked_mul(BYTES).context("cut short")?;
        let (bytes, rest) = self.rest.split_at_checked(size).context("cut short")?;
        self.rest = rest;
        let (items, _) = bytes.as_chunks::<BYTES>();
        Ok(items.iter().map(|bytes| item(*bytes)).collect())
    }

    fn ends(&mut self) -> Result<Vec<usize>> {
        let ends = self.array(u64::from_le_bytes)?;
        ends.into_iter()
            .map(|end| Ok(usize::try_from(end)?))
            .collect()
    }

    fn prompts(&mut self) -> Result<Vec<Prompt>> {
        let (token_ends, block_ends) = (self.ends()?, self.ends()?);
        let tokens = split(&self.array(u32::from_le_bytes)?, &token_ends)?;
        let local = split(&self.array(u64::from_le_bytes)?, &block_ends)?;
        let chained = split(&self.array(u64::from_le_bytes)?, &block_ends)?;
        let hashes = local.into_iter().zip(chained);
        let prompts = tokens.into_iter().zip(hashes);
        Ok(prompts
            .map(|(tokens, (local, chained))| Prompt {
                tokens,
                local,
                chained,
            })
            .collect())
    }

    fn spans(&mut self) -> Result<Vec<Span>> {
        self.array(|bytes: [u8; 16]| {
            let field = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at * 4 + i]));
            Span {
                worker: field(0),
                sequence: field(1) as usize,
                first: field(2) as usize,
                blocks: field(3) as usize,
            }
        })
    }

    fn answers(&mut self) -> Result<Vec<Scores>> {
        let ends = self.ends()?;
        let pairs = self.array(|bytes: [u8; 8]| {
            let field = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at * 4 + i]));
            (field(0), field(1))
        })?;
        let answers = split(&pairs, &ends)?;
        Ok(answers
            .into_iter()
            .map(|pairs| pairs.into_iter().collect())
            .collect())
    }
}

fn split<T: Clone>(items: &[T], ends: &[usize]) -> Result<Vec<Vec<T>>> {
    let starts = std::iter::once(&0).chain(ends);
    let parts = starts.zip(ends).map(|(start, end)| items.get(*start..*end));
    parts
        .map(|part| Ok(part.context("ends beyond the items")?.to_vec()))
        .collect()
}
