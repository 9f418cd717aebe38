//! Token ids as Python has them, as the slice that the core takes.
//!
//! The only file with `unsafe`. Contiguous 32-bit buffers are read in place; everything else is converted in one pass.

#![expect(unsafe_code, reason = "reading a Python buffer in place")]

use pyo3::buffer::{ElementType, PyBuffer, PyUntypedBuffer};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple,
};

use crate::errors;

/// Token ids, borrowed from a Python buffer or owned.
pub(crate) enum TokenIds {
    /// The buffer keeps its memory alive and in place for as long as it is held.
    Unsigned(PyBuffer<u32>),
    /// Checked to hold no negative value.
    Signed(PyBuffer<i32>),
    Owned(Vec<u32>),
}

impl TokenIds {
    /// Takes what Python gave (stub: `TokenIds`).
    pub(crate) fn extract(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(list) = object.cast_exact::<PyList>() {
            return from_items(list.iter().map(Ok), list.len());
        }
        if let Ok(tuple) = object.cast_exact::<PyTuple>() {
            return from_items(tuple.iter().map(Ok), tuple.len());
        }
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            return from_little_endian(bytes.as_bytes());
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

    /// The ids. May be called without the GIL.
    pub(crate) fn as_slice(&self) -> &[u32] {
        let pointer = match self {
            Self::Owned(ids) => return ids,
            Self::Unsigned(buffer) => buffer.as_slice_ptr(),
            Self::Signed(buffer) => buffer.as_slice_ptr().map(|pointer| {
                std::ptr::NonNull::slice_from_raw_parts(pointer.cast::<u32>(), pointer.len())
            }),
        };
        match pointer {
            // SAFETY: the buffer is C-contiguous (or there would be no pointer), aligned and typed as checked when it was
            // taken, and its exporter keeps it in place while `self` holds the view. A thread that writes into it during
            // the call changes values only, each of which is a valid u32: the contract of the stub forbids it, and the
            // worst outcome is the answer to another prompt. i32 and u32 have the same size and alignment.
            Some(pointer) => unsafe { pointer.as_ref() },
            None => &[],
        }
    }
}

fn from_buffer(object: &Bound<'_, PyAny>, buffer: PyUntypedBuffer) -> PyResult<TokenIds> {
    let py = object.py();
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
        return Ok(TokenIds::Owned(Vec::new()));
    }
    let contiguous = buffer.is_c_contiguous();
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
            let ids = TokenIds::Signed(typed::<i32>(buffer)?);
            let TokenIds::Signed(buffer) = &ids else {
                return Ok(ids);
            };
            if !contiguous {
                return from_integers(buffer.to_vec(py)?.into_iter().map(i128::from));
            }
            // One pass without branches; the position is looked for only when there is one.
            if ids.as_slice().iter().fold(0, |all, id| all | id) > i32::MAX.cast_unsigned() {
                return from_integers(buffer.to_vec(py)?.into_iter().map(i128::from));
            }
            Ok(ids)
        }
        ElementType::UnsignedInteger { bytes: 8 } => from_integers(
            typed::<u64>(buffer)?
                .to_vec(py)?
                .into_iter()
                .map(i128::from),
        ),
        ElementType::SignedInteger { bytes: 8 } => from_integers(
            typed::<i64>(buffer)?
                .to_vec(py)?
                .into_iter()
                .map(i128::from),
        ),
        ElementType::UnsignedInteger { bytes: 1 } if is_bytes_like(object) => {
            from_little_endian(&typed::<u8>(buffer)?.to_vec(py)?)
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

fn from_little_endian(bytes: &[u8]) -> PyResult<TokenIds> {
    let (chunks, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        let message = format!(
            "token ids as bytes must come in fours, not: {}",
            bytes.len()
        );
        return Err(errors::token_ids(message));
    }
    Ok(TokenIds::Owned(
        chunks
            .iter()
            .map(|chunk| u32::from_le_bytes(*chunk))
            .collect(),
    ))
}

fn from_integers(values: impl Iterator<Item = i128>) -> PyResult<TokenIds> {
    let ids: Result<Vec<u32>, _> = values
        .enumerate()
        .map(|(index, value)| u32::try_from(value).map_err(|_| (index, value)))
        .collect();
    ids.map(TokenIds::Owned)
        .map_err(|(index, value)| out_of_range(index, value))
}

fn from_items<'py>(
    items: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
    length: usize,
) -> PyResult<TokenIds> {
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
    Ok(TokenIds::Owned(ids))
}

fn out_of_range(index: usize, value: impl std::fmt::Display) -> PyErr {
    let value: String = value.to_string().chars().take(40).collect();
    errors::token_ids(format!(
        "token_ids[{index}] is not an integer in 0..=4294967295: {value}"
    ))
}
