//! One event: a map whose keys come in any order.
//!
//! A writer that puts `type` first is read in one pass. Where `type` comes later, the values before it are passed over
//! and read when it is known which of them matter, so that the answer does not depend on the order of the keys.

use std::num::NonZeroU32;
use std::ops::Range;

use super::fields::{self, Field};
use crate::decode::msgpack::{Item, Reader};
use crate::decode::{DecodeError, DecodeErrorKind};
use crate::model::{Batch, Event, Stored, Tier, WireHash};

/// Bytes of an unknown type's name that an error repeats.
const MAX_NAME_BYTES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventType {
    Stored,
    Removed,
    Cleared,
}

impl EventType {
    /// Whether an event of this type says anything by `field`; if not, it is an unknown key like any other.
    const fn has(self, field: Field) -> bool {
        match self {
            Self::Stored => true,
            Self::Removed => matches!(field, Field::BlockHashes | Field::Medium),
            Self::Cleared => false,
        }
    }
}

enum Key {
    Type,
    Known(Field),
    Unknown,
}

/// What is known of a field while its event is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Absent,
    /// The value at this offset was passed over: the type was not known yet.
    Deferred(usize),
    /// Came twice before the type did: an error only if the type has the field. The offset is the second value's.
    Repeated(usize),
    /// The value at this offset was read.
    Read(usize),
}

/// Reads one event; its hashes and tokens go to the batch's arenas.
pub(super) struct EventReader<'r, 'a> {
    reader: &'r mut Reader<'a>,
    batch: &'r mut Batch,
    /// Where the event begins.
    offset: usize,
    event_type: Option<EventType>,
    places: [Place; Field::ALL.len()],
    wire_hashes: Range<usize>,
    token_ids: Range<usize>,
    parent: Option<WireHash>,
    block_size: Option<i128>,
    tier: Option<Tier>,
}

impl<'r, 'a> EventReader<'r, 'a> {
    pub(super) fn new(reader: &'r mut Reader<'a>, batch: &'r mut Batch) -> Self {
        Self {
            offset: reader.offset(),
            reader,
            batch,
            event_type: None,
            places: Default::default(),
            wire_hashes: 0..0,
            token_ids: 0..0,
            parent: None,
            block_size: None,
            tier: Some(Tier::Device),
        }
    }

    pub(super) fn read(mut self, block_size_tokens: NonZeroU32) -> Result<Event, DecodeError> {
        let pairs = match self.reader.read()? {
            Item::Map(pairs) => pairs,
            Item::Array(_) => return Err(self.error(DecodeErrorKind::ArrayEvent)),
            _ => {
                return Err(DecodeError::field(
                    self.offset,
                    "event",
                    "a map with a type",
                ));
            }
        };
        for _ in 0..pairs {
            self.read_pair()?;
        }
        let Some(event_type) = self.event_type else {
            return Err(self.error(DecodeErrorKind::Missing("type")));
        };
        self.read_deferred(event_type)?;
        self.finish(event_type, block_size_tokens)
    }

    fn read_pair(&mut self) -> Result<(), DecodeError> {
        let start = self.reader.offset();
        match self.read_key()? {
            Key::Type if self.event_type.is_some() => {
                Err(DecodeError::new(start, DecodeErrorKind::Duplicate("type")))
            }
            Key::Type => {
                self.event_type = Some(self.read_type()?);
                Ok(())
            }
            Key::Known(field) => self.read_known(field),
            Key::Unknown => self.reader.skip(),
        }
    }

    fn read_key(&mut self) -> Result<Key, DecodeError> {
        let start = *self.reader;
        Ok(match self.reader.read()? {
            Item::Str(b"type") => Key::Type,
            Item::Str(name) => Field::named(name).map_or(Key::Unknown, Key::Known),
            Item::Array(_) | Item::Map(_) => {
                // Only the header was read, and the whole of it is the key.
                *self.reader = start;
                self.reader.skip()?;
                Key::Unknown
            }
            _ => Key::Unknown,
        })
    }

    fn read_type(&mut self) -> Result<EventType, DecodeError> {
        let start = self.reader.offset();
        match self.reader.read()? {
            Item::Str(b"BlockStored") => Ok(EventType::Stored),
            Item::Str(b"BlockRemoved") => Ok(EventType::Removed),
            Item::Str(b"AllBlocksCleared") => Ok(EventType::Cleared),
            Item::Str(name) => {
                let kind = DecodeErrorKind::UnknownType(printable(name));
                Err(DecodeError::new(start, kind))
            }
            _ => Err(DecodeError::field(start, "type", "a string")),
        }
    }

    /// Reads the value of `field`, or remembers where it is until the type is known.
    fn read_known(&mut self, field: Field) -> Result<(), DecodeError> {
        let start = self.reader.offset();
        let place = &mut self.places[field as usize];
        match self.event_type {
            Some(event_type) if event_type.has(field) => match place {
                Place::Absent => self.read_value(field),
                _ => Err(duplicate(field, start)),
            },
            Some(_) => self.reader.skip(),
            None => {
                *place = match place {
                    Place::Absent => Place::Deferred(start),
                    _ => Place::Repeated(start),
                };
                self.reader.skip()
            }
        }
    }

    fn read_deferred(&mut self, event_type: EventType) -> Result<(), DecodeError> {
        let end = *self.reader;
        for field in Field::ALL {
            match self.places[field as usize] {
                _ if !event_type.has(field) => {}
                Place::Deferred(offset) => {
                    *self.reader = end.at(offset);
                    self.read_value(field)?;
                }
                Place::Repeated(offset) => return Err(duplicate(field, offset)),
                Place::Absent | Place::Read(_) => {}
            }
        }
        *self.reader = end;
        Ok(())
    }

    fn read_value(&mut self, field: Field) -> Result<(), DecodeError> {
        self.places[field as usize] = Place::Read(self.reader.offset());
        match field {
            Field::BlockHashes => {
                self.wire_hashes = fields::block_hashes(self.reader, &mut self.batch.wire_hashes)?;
            }
            Field::ParentBlockHash => self.parent = fields::parent_block_hash(self.reader)?,
            Field::TokenIds => {
                self.token_ids = fields::token_ids(self.reader, &mut self.batch.token_ids)?;
            }
            Field::BlockSize => self.block_size = fields::block_size(self.reader)?,
            Field::Medium => self.tier = fields::medium(self.reader)?,
        }
        Ok(())
    }

    fn finish(self, event_type: EventType, size: NonZeroU32) -> Result<Event, DecodeError> {
        if event_type == EventType::Cleared {
            return Ok(Event::Cleared);
        }
        if self.places[Field::BlockHashes as usize] == Place::Absent {
            return Err(self.error(DecodeErrorKind::Missing(Field::BlockHashes.name())));
        }
        if event_type == EventType::Removed {
            return Ok(Event::Removed {
                wire_hashes: self.wire_hashes,
                tier: self.tier,
            });
        }
        if !self.token_ids.is_empty() {
            self.check_tokens(size)?;
        }
        Ok(Event::Stored(Stored {
            wire_hashes: self.wire_hashes,
            token_ids: self.token_ids,
            parent: self.parent,
            tier: self.tier,
        }))
    }

    /// Whether the tokens are those of whole blocks of the stream's size. Without tokens the size means nothing.
    fn check_tokens(&self, configured: NonZeroU32) -> Result<(), DecodeError> {
        if self.block_size != Some(configured.get().into()) {
            let kind = DecodeErrorKind::BlockSize {
                found: self.block_size,
                configured,
            };
            return Err(DecodeError::new(self.offset_of(Field::BlockSize), kind));
        }
        let (tokens, blocks) = (self.token_ids.len(), self.wire_hashes.len());
        let wanted = usize::try_from(configured.get())
            .ok()
            .and_then(|size| blocks.checked_mul(size));
        if wanted != Some(tokens) {
            let kind = DecodeErrorKind::Shape {
                tokens,
                blocks,
                block_size_tokens: configured,
            };
            return Err(DecodeError::new(self.offset_of(Field::TokenIds), kind));
        }
        Ok(())
    }

    /// Where the value of `field` begins, or the event where it has none.
    fn offset_of(&self, field: Field) -> usize {
        match self.places[field as usize] {
            Place::Read(offset) => offset,
            _ => self.offset,
        }
    }

    /// An error of the event as a whole.
    fn error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError::new(self.offset, kind)
    }
}

fn duplicate(field: Field, offset: usize) -> DecodeError {
    DecodeError::new(offset, DecodeErrorKind::Duplicate(field.name()))
}

/// A peer's text, cut and without control characters.
fn printable(text: &[u8]) -> String {
    let cut = &text[..text.len().min(MAX_NAME_BYTES)];
    let mut printable: String = String::from_utf8_lossy(cut)
        .chars()
        .flat_map(char::escape_debug)
        .collect();
    if cut.len() < text.len() {
        printable.push('…');
    }
    printable
}
