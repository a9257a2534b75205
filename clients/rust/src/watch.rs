//! Whether keys exist, as it changes.

use crate::core::{Id, WatchEvent};
use crate::error::Error;
use crate::link::Shared;
use futures_util::Stream;
use futures_util::task::AtomicWaker;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Tells whether keys exist, and then each change of that. Dropped, it ends; the server is told when nobody else on the
/// connection watches the key.
///
/// Also a stream, which ends after the first error.
///
/// Changes that nobody reads are kept, 1,024 of them and one more for each key. Of what exceeds that, changes of a key that
/// cancel each other out are left out; what is read last of a key is always its state.
#[must_use = "it ends when it is dropped"]
pub struct Watch {
    shared: Arc<Shared>,
    id: Id,
    waker: Arc<AtomicWaker>,
    is_over: bool,
}

impl Watch {
    pub(crate) fn new(
        shared: Arc<Shared>,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Watch {
        let keys = keys.into_iter().map(|key| key.as_ref().to_vec()).collect();
        let (id, waker) = shared.watch(keys);
        Watch {
            shared,
            id,
            waker,
            is_over: false,
        }
    }

    /// What comes next: first the state of each key, in no particular order, then what changes. In a session, after the connection
    /// was replaced, the states come again: what happened between is unknown. Nothing is lost if this future is dropped. O(1).
    ///
    /// # Errors
    /// [`Error::Refused`] where a key may not be watched, which ends the whole watch; [`Error::Unreachable`] once the connection
    /// has ended. It is the same error each time.
    pub async fn next(&mut self) -> Result<WatchEvent, Error> {
        poll_fn(|context| self.poll_event(context)).await
    }

    fn poll_event(&self, context: &Context<'_>) -> Poll<Result<WatchEvent, Error>> {
        // Before it looks, so that what comes after that wakes it.
        self.waker.register(context.waker());
        let event = self.shared.next_event(self.id);
        event.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Stream for Watch {
    type Item = Result<WatchEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let event = self.poll_event(context);
        self.is_over = matches!(event, Poll::Ready(Err(_)));
        event.map(Some)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.unwatch(self.id);
    }
}
