//! From a publisher's socket until the last sequence is visible, beside a subscriber that only receives.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kvcache_core::directory::{Directory, StreamSpec};
use kvcache_core::model::{Limits, StreamKey};
use kvcache_core::zmtp::{self, Endpoint, SocketType, Timeouts};
use serde_json::json;

use crate::cli::Cli;
use crate::figures::{Subject, least, rate};
use crate::publisher::{BLOCK_SIZE, BLOCKS_A_MESSAGE, TOPIC, last_sequence};
use crate::scene;

const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_micros(200);
/// More than one round sends: what is measured is speed, not what becomes of an engine that is faster.
const BUFFERED_BYTES: usize = 4 << 30;

struct Publisher {
    child: Child,
    lines: BufReader<ChildStdout>,
    endpoint: Endpoint,
    replay_endpoint: Endpoint,
}

impl Publisher {
    fn start(blocks: usize) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["publisher", "--blocks", &blocks.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?);
        let mut ports = String::new();
        lines.read_line(&mut ports)?;
        let (events, replay) = ports.trim().split_once(' ').context("no ports")?;
        Ok(Self {
            child,
            lines,
            endpoint: Endpoint::parse(&format!("tcp://127.0.0.1:{events}"))?,
            replay_endpoint: Endpoint::parse(&format!("tcp://127.0.0.1:{replay}"))?,
        })
    }

    fn go(&mut self) -> Result<Instant> {
        let orders = self.child.stdin.as_mut().context("no input")?;
        let start = Instant::now();
        orders.write_all(b"go\n")?;
        Ok(start)
    }

    /// Seconds that sending took.
    fn end(mut self) -> Result<f64> {
        let mut seconds = String::new();
        self.lines.read_line(&mut seconds)?;
        drop(self.child.stdin.take());
        self.child.wait()?;
        Ok(seconds.trim().parse()?)
    }
}

/// Alternates both subscribers.
///
/// # Errors
/// Whatever fails.
pub fn run(cli: &Cli) -> Result<()> {
    let (mut visible, mut received, mut sent) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..cli.rounds {
        received.push(receive(cli.blocks)?);
        let (seen, sending) = follow(cli.blocks)?;
        visible.push(seen);
        sent.push(sending);
    }
    Subject {
        measure: "wire to visible",
        variant: "64 blocks a message",
        block_size: BLOCK_SIZE,
        streams: 1,
        entries: cli.blocks,
    }
    .print(json!({
        "blocks_per_s": rate(cli.blocks, least(&visible)),
        "median_blocks_per_s": rate(cli.blocks, crate::figures::percentile(&visible, 0.5)),
        "sent_blocks_per_s": rate(cli.blocks, least(&sent)),
        "received_blocks_per_s": rate(cli.blocks, least(&received)),
    }));
    Ok(())
}

/// Seconds until visible, and of sending.
fn follow(blocks: usize) -> Result<(f64, f64)> {
    let mut publisher = Publisher::start(blocks)?;
    let spec = StreamSpec {
        key: StreamKey::new("engine", 0),
        block_spec: scene::index(BLOCK_SIZE)?.spec(),
        endpoint: publisher.endpoint.clone(),
        replay_endpoint: publisher.replay_endpoint.clone(),
        topic: TOPIC.to_owned(),
        identity: None,
    };
    let limits = Limits {
        max_buffered_bytes: BUFFERED_BYTES,
        max_blocks_per_stream: blocks.max(Limits::default().max_blocks_per_stream),
        ..Limits::default()
    };
    let directory = Directory::start(vec![spec], limits)?;
    if !directory.wait_synchronized_slice(PATIENCE)? {
        bail!("never synchronized: {}", directory.unsynchronized()?);
    }
    let last = last_sequence(blocks);
    let start = publisher.go()?;
    while directory
        .query(&[])?
        .get(0)
        .map(|(_, hit)| hit.sequence.map(|at| at.0))
        != Some(Some(last))
    {
        if start.elapsed() > PATIENCE {
            bail!("not visible in time: {}", directory.unsynchronized()?);
        }
        std::thread::sleep(GLANCE);
    }
    let seen = start.elapsed().as_secs_f64();
    Ok((seen, publisher.end()?))
}

/// Seconds until everything is received by a client that does nothing with it.
fn receive(blocks: usize) -> Result<f64> {
    let mut publisher = Publisher::start(blocks)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let endpoint = publisher.endpoint.clone();
    let seconds = runtime.block_on(async {
        let mut connection = zmtp::connect(
            &endpoint,
            SocketType::Sub,
            zmtp::Limits::default(),
            Timeouts::default(),
        )
        .await?;
        connection.subscribe(TOPIC.as_bytes()).await?;
        let start = publisher.go()?;
        let all = runtime.spawn(async move {
            for _ in 0..blocks / BLOCKS_A_MESSAGE {
                connection.recv().await?;
            }
            Ok::<_, zmtp::Error>(connection)
        });
        let _connection = all.await??;
        anyhow::Ok(start.elapsed().as_secs_f64())
    })?;
    publisher.end()?;
    Ok(seconds)
}
