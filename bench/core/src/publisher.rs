//! A publisher in a process of its own that writes messages encoded before, as fast as the socket takes them.
//!
//! Says its two ports on one line, waits for a subscriber and for a line on its input, sends everything, says how many
//! seconds that took, and ends with its input.

use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::cli::Cli;
use crate::encode::{frame, snapshot, store_message};
use crate::story;

pub const TOPIC: &str = "kv";
pub const BLOCK_SIZE: u32 = 16;
pub const BLOCKS_A_MESSAGE: usize = 64;
/// Sequences of the snapshot, which is empty, and so of the message before the first.
const WATERMARK: u64 = 1;

/// The sequence of the last message.
#[must_use]
pub fn last_sequence(blocks: usize) -> u64 {
    WATERMARK + (blocks / BLOCKS_A_MESSAGE) as u64
}

/// Publishes `cli.blocks` blocks once.
///
/// # Errors
/// A socket's.
pub fn run(cli: &Cli) -> Result<()> {
    let events = TcpListener::bind("127.0.0.1:0")?;
    let snapshots = TcpListener::bind("127.0.0.1:0")?;
    let bytes = messages(cli.blocks);
    println!(
        "{} {}",
        events.local_addr()?.port(),
        snapshots.local_addr()?.port()
    );
    // Ends with the process.
    std::thread::spawn(move || answer(&snapshots));
    let (mut subscriber, _) = events.accept()?;
    shake_hands(&mut subscriber, "XPUB")?;
    read_frame(&mut subscriber)?;
    let mut orders = std::io::stdin().lock().lines();
    orders.next().context("no order to begin")??;
    let start = Instant::now();
    subscriber.write_all(&bytes)?;
    println!("{}", start.elapsed().as_secs_f64());
    orders.next();
    Ok(())
}

fn messages(blocks: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let spans = story::tell(1, blocks, BLOCK_SIZE, 1024, BLOCKS_A_MESSAGE);
    for (sequence, span) in (WATERMARK + 1..).zip(&spans) {
        frame(&mut bytes, TOPIC.as_bytes(), true);
        frame(&mut bytes, &sequence.to_be_bytes(), true);
        frame(&mut bytes, &store_message(span, BLOCK_SIZE), false);
    }
    bytes
}

/// Gives everybody who asks the same empty snapshot.
fn answer(replay: &TcpListener) -> Result<()> {
    let mut bytes = Vec::new();
    frame(&mut bytes, b"", true);
    frame(&mut bytes, &WATERMARK.to_be_bytes(), true);
    frame(&mut bytes, &snapshot(&[], BLOCK_SIZE), false);
    frame(&mut bytes, b"", true);
    frame(&mut bytes, &u64::MAX.to_be_bytes(), true);
    frame(&mut bytes, b"", false);
    loop {
        let (mut client, _) = replay.accept()?;
        shake_hands(&mut client, "ROUTER")?;
        read_frame(&mut client)?;
        read_frame(&mut client)?;
        client.write_all(&bytes)?;
        // The client hangs up when it has read all.
        let _ = client.read(&mut [0; 64]);
    }
}

/// ZMTP 3.0 without security, as a socket of that type.
fn shake_hands(stream: &mut TcpStream, socket_type: &str) -> Result<()> {
    let mut greeting = [0; 64];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[12..16].copy_from_slice(b"NULL");
    let mut ready = b"\x05READY\x0bSocket-Type\0\0\0".to_vec();
    ready.push(u8::try_from(socket_type.len())?);
    ready.extend_from_slice(socket_type.as_bytes());
    stream.write_all(&greeting)?;
    stream.write_all(&[4, u8::try_from(ready.len())?])?;
    stream.write_all(&ready)?;
    stream.read_exact(&mut greeting)?;
    read_frame(stream)
}

fn read_frame(stream: &mut TcpStream) -> Result<()> {
    let mut header = [0; 2];
    stream.read_exact(&mut header)?;
    let mut body = vec![0; usize::from(header[1])];
    stream.read_exact(&mut body)?;
    Ok(())
}
