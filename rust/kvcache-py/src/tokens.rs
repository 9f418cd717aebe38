//! Token ids as Python has them, as the slice that the core takes.
//!
//! The only file of the binding with `unsafe`. Contiguous 32-bit buffers and bytes are read in place; everything else is
//! converted in one pass.

#![expect(unsafe_code, reason = "reading Python's memory in place")]

use pyo3::buffer::{Element, ElementType, PyBuffer, PyUntypedBuffer};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple,
};

use crate::errors;
use crate::gil;

/// Token ids, borrowed from what Python gave or owned.
pub(crate) enum TokenIds<'a> {
    /// Of an object that cannot change.
    Borrowed(&'a [u32]),
    /// The buffer keeps its memory alive and in place for as long as it is held.
    Unsigned(PyBuffer<u32>),
    /// Checked to hold no negative value.
    Signed(PyBuffer<i32>),
    /// Little-endian, on a machine that is; checked to be aligned and to come in fours.
    Bytes(PyBuffer<u8>),
    Owned(Vec<u32>),
    /// Each of which was an object.
    Objects(Vec<u32>),
}

impl<'a> TokenIds<'a> {
    /// Takes what Python gave (stub: `TokenIds`).
    pub(crate) fn extract(object: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(list) = object.cast_exact::<PyList>() {
            // A tuple does not change under the reader, whatever other threads do.
            return from_tuple(&list.to_tuple());
        }
        if let Ok(tuple) = object.cast_exact::<PyTuple>() {
            return from_tuple(tuple);
        }
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            return from_bytes(bytes.as_bytes());
        }
        if object.is_instance_of::<PyString>() {
            return Err(errors::token_ids(
                "token ids must be integers, not text".to_owned(),
            ));
        }
        if let Ok(buffer) = PyUntypedBuffer::get(object) {
            return from_buffer(object, buffer);
        }
        match object.try_iter() {
            Ok(items) => from_items(items, object.len().unwrap_or(0)),
            Err(_) => Err(errors::token_ids(format!(
                "token ids of an unsupported type: {}",
                object.get_type().name()?
            ))),
        }
    }

    /// Whether the GIL is to be given up while they are worked on.
    pub(crate) fn is_enough_work(&self) -> bool {
        let enough = match self {
            Self::Objects(_) => gil::ENOUGH_AFTER_OBJECTS,
            _ => gil::ENOUGH,
        };
        self.as_slice().len() >= enough
    }

    /// The ids. May be called without the GIL.
    pub(crate) fn as_slice(&self) -> &[u32] {
        match self {
            Self::Borrowed(ids) => ids,
            Self::Owned(ids) | Self::Objects(ids) => ids,
            Self::Unsigned(buffer) => in_place(buffer),
            Self::Signed(buffer) => bytemuck::cast_slice(in_place(buffer)),
            Self::Bytes(buffer) => bytemuck::try_cast_slice(in_place(buffer)).unwrap_or(&[]),
        }
    }
}

/// A buffer's elements; none when it is not contiguous.
fn in_place<T: Element>(buffer: &PyBuffer<T>) -> &[T] {
    match buffer.as_slice_ptr() {
        // SAFETY: the buffer is C-contiguous (or there would be no pointer), aligned and typed as checked when it was
        // taken, and its exporter keeps it in place while `buffer` is held. A thread that writes into it during the call
        // changes values only, each of which is a valid integer: the contract of the stub forbids it, and the worst
        // outcome is the answer to another prompt.
        Some(pointer) => unsafe { pointer.as_ref() },
        None => &[],
    }
}

fn from_buffer<'a>(object: &Bound<'_, PyAny>, buffer: PyUntypedBuffer) -> PyResult<TokenIds<'a>> {
    if buffer.dimensions() != 1 {
        let message = format!(
            "token ids must have one dimension, not {}",
            buffer.dimensions()
        );
        return Err(errors::token_ids(message));
    }
    if matches!(buffer.format().to_bytes(), [b'>' | b'!', ..]) != cfg!(target_endian = "big")
        && matches!(buffer.format().to_bytes(), [b'<' | b'>' | b'!', ..])
    {
        return Err(errors::token_ids(
            "token ids must be in the machine's byte order".to_owned(),
        ));
    }
    if buffer.item_count() == 0 {
        // An empty buffer may point anywhere, aligned or not.
        return Ok(TokenIds::Borrowed(&[]));
    }
    let (py, contiguous) = (object.py(), buffer.is_c_contiguous());
    match ElementType::from_format(buffer.format()) {
        ElementType::UnsignedInteger { bytes: 4 } => {
            let buffer = typed::<u32>(buffer)?;
            if contiguous {
                Ok(TokenIds::Unsigned(buffer))
            } else {
                Ok(TokenIds::Owned(buffer.to_vec(py)?))
            }
        }
        ElementType::SignedInteger { bytes: 4 } => {
            let buffer = typed::<i32>(buffer)?;
            if !contiguous {
                return from_signed(buffer.to_vec(py)?);
            }
            if is_any_negative(in_place(&buffer)) {
                // Copied, as the position is looked for in what cannot change any more.
                return from_signed(buffer.to_vec(py)?);
            }
            Ok(TokenIds::Signed(buffer))
        }
        ElementType::UnsignedInteger { bytes: 8 } => from_wide(py, &typed::<u64>(buffer)?),
        ElementType::SignedInteger { bytes: 8 } => from_wide(py, &typed::<i64>(buffer)?),
        ElementType::UnsignedInteger { bytes: 1 } if is_bytes_like(object) => {
            from_byte_buffer(py, typed::<u8>(buffer)?)
        }
        _ => {
            let message = format!(
                "token ids must be 32- or 64-bit integers, not buffer format: {}",
                buffer.format().to_string_lossy()
            );
            Err(errors::token_ids(message))
        }
    }
}

/// Refuses what has the right size and the wrong byte order or alignment.
fn typed<T: pyo3::buffer::Element>(buffer: PyUntypedBuffer) -> PyResult<PyBuffer<T>> {
    buffer
        .into_typed()
        .map_err(|error| errors::token_ids(format!("token ids in an unusable buffer: {error}")))
}

/// Arrays of 8-bit integers are not: their elements would be taken for bytes of others.
fn is_bytes_like(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyByteArray>()
        || object.is_instance_of::<PyMemoryView>()
}

fn from_byte_buffer<'a>(py: Python<'_>, buffer: PyBuffer<u8>) -> PyResult<TokenIds<'a>> {
    if cfg!(target_endian = "little")
        && bytemuck::try_cast_slice::<u8, u32>(in_place(&buffer)).is_ok()
        && buffer.is_c_contiguous()
    {
        return Ok(TokenIds::Bytes(buffer));
    }
    Ok(TokenIds::Owned(little_endian(&buffer.to_vec(py)?)?))
}

fn from_bytes(bytes: &[u8]) -> PyResult<TokenIds<'_>> {
    if cfg!(target_endian = "little")
        && let Ok(ids) = bytemuck::try_cast_slice(bytes)
    {
        return Ok(TokenIds::Borrowed(ids));
    }
    Ok(TokenIds::Owned(little_endian(bytes)?))
}

fn little_endian(bytes: &[u8]) -> PyResult<Vec<u32>> {
    let (chunks, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        let message = format!(
            "token ids as bytes must come in fours, not: {}",
            bytes.len()
        );
        return Err(errors::token_ids(message));
    }
    Ok(chunks.iter().copied().map(u32::from_le_bytes).collect())
}

/// One pass without branches.
fn is_any_negative(ids: &[i32]) -> bool {
    ids.iter().fold(0, |all, id| all | id) < 0
}

fn from_signed<'a>(ids: Vec<i32>) -> PyResult<TokenIds<'a>> {
    match ids.iter().position(|id| *id < 0) {
        Some(index) => Err(out_of_range(index, ids[index])),
        None => Ok(TokenIds::Owned(bytemuck::cast_vec(ids))),
    }
}

/// 64-bit ids, signed or not; the position of a bad one is looked for when there is one.
fn from_wide<'a, T: Element + bytemuck::Pod + std::fmt::Display>(
    py: Python<'_>,
    buffer: &PyBuffer<T>,
) -> PyResult<TokenIds<'a>> {
    let copied;
    let wide: &[T] = if buffer.is_c_contiguous() {
        in_place(buffer)
    } else {
        copied = buffer.to_vec(py)?;
        &copied
    };
    let bits: &[u64] = bytemuck::cast_slice(wide);
    let (ids, all_bits) = narrowed(bits);
    if u32::try_from(all_bits).is_ok() {
        return Ok(TokenIds::Owned(ids));
    }
    let bad = bits.iter().position(|id| u32::try_from(*id).is_err());
    // None is left only when another thread has changed the buffer meanwhile.
    let index = bad.unwrap_or(0);
    Err(out_of_range(index, wide[index]))
}

/// The lower halves, and all bits that are set in any. One pass without branches.
fn narrowed(wide: &[u64]) -> (Vec<u32>, u64) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has what the function needs.
        return unsafe { narrowed_with_avx2(wide) };
    }
    narrowed_anywhere(wide)
}

/// The same, compiled for registers twice as wide.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn narrowed_with_avx2(wide: &[u64]) -> (Vec<u32>, u64) {
    narrowed_anywhere(wide)
}

#[expect(
    clippy::inline_always,
    reason = "to be compiled for what its caller needs"
)]
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
fn narrowed_anywhere(wide: &[u64]) -> (Vec<u32>, u64) {
    let mut ids = Vec::with_capacity(wide.len());
    let mut all_bits = 0;
    for (place, id) in ids.spare_capacity_mut().iter_mut().zip(wide) {
        all_bits |= id;
        place.write(*id as u32);
    }
    // SAFETY: there is room for all of `wide`, and each place has been written.
    unsafe { ids.set_len(wide.len()) };
    (ids, all_bits)
}

/// Exact integers by the shortest way, everything else by [`from_items`].
fn from_tuple<'a>(tuple: &Bound<'_, PyTuple>) -> PyResult<TokenIds<'a>> {
    let mut ids = Vec::with_capacity(tuple.len());
    for item in tuple.iter_borrowed() {
        match exact_integer(&item) {
            Some(id) => ids.push(id),
            None => return from_items(tuple.iter().map(Ok), tuple.len()),
        }
    }
    Ok(TokenIds::Objects(ids))
}

/// The value of an `int` in range; `None` for anything else.
#[inline]
fn exact_integer(item: &Bound<'_, PyAny>) -> Option<u32> {
    if !item.is_exact_instance_of::<PyInt>() {
        return None;
    }
    // SAFETY: called with the GIL on an `int` that `item` keeps alive.
    let value = unsafe { ffi::PyLong_AsLongLong(item.as_ptr()) };
    let id = u32::try_from(value).ok();
    if id.is_none() {
        // An overflow left an exception behind; who refuses the value raises its own.
        drop(PyErr::take(item.py()));
    }
    id
}

fn from_items<'a, 'py>(
    items: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
    length: usize,
) -> PyResult<TokenIds<'a>> {
    // A length is what an object says of itself; only what it yields is believed.
    let mut ids = Vec::with_capacity(length.min(1 << 16));
    for item in items {
        let item = item?;
        // True is an integer to Python; to a caller it is a mistake.
        let integer = item.is_exact_instance_of::<PyInt>()
            || !(item.is_instance_of::<PyBool>() || item.is_instance_of::<PyFloat>());
        match item.extract::<u32>() {
            Ok(id) if integer => ids.push(id),
            _ => return Err(out_of_range(ids.len(), item.repr()?)),
        }
    }
    Ok(TokenIds::Objects(ids))
}

fn out_of_range(index: usize, value: impl std::fmt::Display) -> PyErr {
    let value: String = value.to_string().chars().take(40).collect();
    errors::token_ids(format!(
        "token_ids[{index}] is not an integer in 0..=4294967295: {value}"
    ))
}
