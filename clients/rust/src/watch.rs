//! What is watched: whether keys exist, the temporary keys of a prefix, who leads.

use crate::callers::{Backlog, Callers, Leadership, Pending};
use crate::cluster::{Cluster, Route};
use crate::core::{Bytes, Core, Id, Member, PresenceEvent, Told, WatchEvent};
use crate::error::Error;
use futures_util::Stream;
use futures_util::task::AtomicWaker;
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Tells whether keys exist, and then each change of that. Dropped, it ends; the server is told when nobody else of this client
/// watches the key. After a reconnect it tells what has changed meanwhile.
///
/// Also a stream, which ends after the first error.
///
/// Changes that nobody reads are kept, 1,024 of them and one more for each key. Of what exceeds that, changes of a key that
/// cancel each other out are left out; what is read last of a key is always its state.
#[must_use = "it ends when it is dropped"]
pub struct Watch(Events<WatchEvent>);

/// Tells which temporary keys of a prefix there are, with their values, and then each change. As [`Watch`] in all else.
#[must_use = "it ends when it is dropped"]
pub struct Presence(Events<PresenceEvent>);

/// Tells who leads in an election, first and at each change: token and value, or None for nobody. As [`Watch`] in all else.
#[must_use = "it ends when it is dropped"]
pub struct LeaderWatch(Events<Leadership>);

/// What is read at the reader's pace.
struct Events<T: Pending> {
    route: Route,
    begin: Begin,
    /// None in a forked child.
    watch: Option<(Id, Arc<AtomicWaker>)>,
    backlogs: fn(&mut Callers) -> &mut HashMap<Id, Backlog<T>>,
    end: fn(&mut Core, Id),
    is_over: bool,
}

type Begin = Box<dyn Fn(&mut Core, &mut Callers, Id, Told) -> Arc<AtomicWaker> + Send + Sync>;

impl<T: Pending> Events<T> {
    fn new(
        route: Route,
        begin: impl Fn(&mut Core, &mut Callers, Id, Told) -> Arc<AtomicWaker> + Send + Sync + 'static,
        backlogs: fn(&mut Callers) -> &mut HashMap<Id, Backlog<T>>,
        end: fn(&mut Core, Id),
    ) -> Events<T> {
        let mut events = Events {
            route,
            begin: Box::new(begin),
            watch: None,
            backlogs,
            end,
            is_over: false,
        };
        events.begin(Told::default());
        events
    }

    fn begin(&mut self, told: Told) {
        let begin = &self.begin;
        let begin =
            |core: &mut Core, callers: &mut Callers, id| (id, begin(core, callers, id, told));
        self.watch = self.route.node().watch(begin).ok();
    }

    fn end(&mut self) {
        if let Some((id, _)) = self.watch.take() {
            let (backlogs, end) = (self.backlogs, self.end);
            self.route.node().tell(|core, callers| {
                end(core, id);
                backlogs(callers).remove(&id);
            });
        }
    }

    async fn next(&mut self) -> Result<T, Error> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<T, Error>> {
        loop {
            let node = self.route.node();
            let Some((id, waker)) = self.watch.as_ref().filter(|_| !node.is_of_parent()) else {
                return Poll::Ready(Err(Error::Forked));
            };
            // Before it looks, so that what comes after that wakes it.
            waker.register(context.waker());
            let look = |callers: &mut Callers| (self.backlogs)(callers).get_mut(id)?.next();
            let Some(event) = node.with_callers(look) else {
                return Poll::Pending;
            };
            if let Err(error) = &event
                && self.is_referred(error)
            {
                continue;
            }
            return Poll::Ready(event);
        }
    }

    /// Whether it goes on at another node, which tells the difference (P-CLUSTER-7).
    fn is_referred(&mut self, error: &Error) -> bool {
        let mut route = self.route.clone();
        if !route.follows_at_last(error) {
            return false;
        }
        let told = self.watch.as_ref().and_then(|(id, _)| {
            let told = |callers: &mut Callers| Some((self.backlogs)(callers).get(id)?.told.clone());
            self.route.node().with_callers(told)
        });
        self.end();
        self.route = route;
        self.begin(told.unwrap_or_default());
        true
    }

    fn poll_next(&mut self, context: &Context<'_>) -> Poll<Option<Result<T, Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let event = self.poll(context);
        self.is_over = matches!(event, Poll::Ready(Err(_)));
        event.map(Some)
    }
}

impl<T: Pending> Drop for Events<T> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Watch {
    pub(crate) fn new(cluster: &Arc<Cluster>, keys: Vec<Bytes>) -> Watch {
        let route = Route::of(cluster, keys.first());
        let begin = move |core: &mut Core, callers: &mut Callers, id, told| {
            let waker = callers.expect_watch(id);
            core.watch(id, keys.clone(), told);
            waker
        };
        Watch(Events::new(route, begin, Callers::watches, Core::unwatch))
    }

    /// What comes next: first the state of each key, in no particular order, then what changes. Nothing is lost if this future is
    /// dropped. O(1).
    ///
    /// # Errors
    /// [`Error::Refused`] where a key may not be watched, which ends the whole watch; why no server is reached, if that is for good;
    /// [`Error::Closed`]. It is the same error each time.
    pub async fn next(&mut self) -> Result<WatchEvent, Error> {
        self.0.next().await
    }
}

impl Presence {
    pub(crate) fn new(cluster: &Arc<Cluster>, prefix: Bytes) -> Presence {
        let route = Route::of(cluster, Some(&prefix));
        let begin = move |core: &mut Core, callers: &mut Callers, id, told| {
            let waker = callers.expect_presence(id);
            core.presence(id, prefix.clone(), told);
            waker
        };
        Presence(Events::new(
            route,
            begin,
            Callers::presences,
            Core::end_presence,
        ))
    }

    /// What comes next: first each key that is there, then what changes. Nothing is lost if this future is dropped. O(1).
    ///
    /// # Errors
    /// As of [`Watch::next`].
    pub async fn next(&mut self) -> Result<PresenceEvent, Error> {
        self.0.next().await
    }
}

impl LeaderWatch {
    pub(crate) fn new(cluster: &Arc<Cluster>, name: Bytes) -> LeaderWatch {
        let route = Route::of(cluster, Some(&name));
        let begin = move |core: &mut Core, callers: &mut Callers, id, told| {
            let waker = callers.expect_leader(id);
            core.observe(id, name.clone(), told);
            waker
        };
        LeaderWatch(Events::new(
            route,
            begin,
            Callers::leaders,
            Core::end_presence,
        ))
    }

    /// Who leads now, and then each other one. Nothing is lost if this future is dropped. O(1).
    ///
    /// # Errors
    /// As of [`Watch::next`].
    pub async fn next(&mut self) -> Result<Option<Member>, Error> {
        self.0.next().await
    }
}

macro_rules! stream {
    ($name:ident, $item:ty) => {
        impl Stream for $name {
            type Item = Result<$item, Error>;

            fn poll_next(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<Option<Self::Item>> {
                self.0.poll_next(context)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

stream!(Watch, WatchEvent);
stream!(Presence, PresenceEvent);
stream!(LeaderWatch, Option<Member>);
