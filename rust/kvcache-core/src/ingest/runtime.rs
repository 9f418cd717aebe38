//! The few threads that all streams share, and the handle of one stream's tasks.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::{AbortHandle, JoinHandle};

use super::queue;
use super::status::{StateChanges, StatusCell, StreamStatus};
use super::worker::{self, StreamSource, Worker};
use crate::stream::{StreamSettings, StreamState, Views};

/// Threads for up to 128 streams: decoding and indexing keep one busy at most, a snapshot another.
const MAX_THREADS: usize = 4;
/// Shutting down takes at most this long: longer than any single poll of a task.
const SHUTDOWN: Duration = Duration::from_millis(900);

/// A tokio runtime of the directory's own: it works beside any other, and ends when it is told to.
#[derive(Debug)]
pub struct IngestRuntime {
    runtime: Runtime,
    changes: Arc<StateChanges>,
}

impl IngestRuntime {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the operating system refuses threads or descriptors.
    pub fn start() -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_multi_thread()
            .worker_threads(cores.clamp(2, MAX_THREADS))
            .thread_name("kvcache-ingest")
            .enable_io()
            .enable_time()
            .build()?;
        Ok(Self {
            runtime,
            changes: Arc::new(StateChanges::default()),
        })
    }

    /// Starts to follow a stream; `views` belongs to its worker from now on.
    pub fn follow<V>(&self, source: StreamSource, settings: StreamSettings, views: V) -> StreamTask
    where
        V: Views + Send + 'static,
    {
        let status = Arc::new(StatusCell::new(Instant::now(), self.changes.clone()));
        let source = Arc::new(source);
        let (sender, receiver) = queue::channel(queue_bytes(&source));
        let worker = Worker::new(source.clone(), settings, views, receiver, status.clone());
        let subscription = self.runtime.spawn(worker::subscribe(source, sender));
        let connection = EndsWithWorker(subscription.abort_handle());
        StreamTask {
            subscription,
            worker: self.runtime.spawn(async move {
                let _connection = connection;
                worker.run().await;
            }),
            status,
        }
    }

    /// Tells when some stream's state changes.
    #[must_use]
    pub fn changes(&self) -> Arc<StateChanges> {
        self.changes.clone()
    }

    /// Ends every task and thread; connections close.
    pub fn shutdown(self) {
        self.runtime.shutdown_timeout(SHUTDOWN);
    }
}

/// The largest message must fit, whatever the budget.
fn queue_bytes(source: &StreamSource) -> usize {
    let largest = source.transport_limits().max_message_bytes;
    source
        .limits
        .max_buffered_bytes
        .max(largest.saturating_add(4096))
}

/// A subscription that nobody listens to would go on for ever; the worker ends of itself when its subscription does.
#[derive(Debug)]
struct EndsWithWorker(AbortHandle);

impl Drop for EndsWithWorker {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A followed stream. Dropping it ends its tasks, and with them its view.
#[derive(Debug)]
pub struct StreamTask {
    subscription: JoinHandle<()>,
    worker: JoinHandle<()>,
    status: Arc<StatusCell>,
}

impl StreamTask {
    /// What the stream is doing.
    #[must_use]
    pub fn status(&self) -> StreamStatus {
        self.status.read(Instant::now())
    }

    /// The state alone, cheaply.
    #[must_use]
    pub fn state(&self) -> StreamState {
        self.status.state()
    }
}

impl Drop for StreamTask {
    fn drop(&mut self) {
        self.subscription.abort();
        self.worker.abort();
    }
}
