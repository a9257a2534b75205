//! What comes from the server, in an order in which it can be believed.

use crate::clock::BootTime;
use crate::core::{Reply, Tag};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::PushInfo;
use std::future::poll_fn;
use std::task::{Context, Poll};
use tokio::sync::mpsc::UnboundedReceiver;

/// What a command was about, when it was sent, and the reply; None where the connection broke.
pub type Answer = (Tag, BootTime, Option<Reply>);

pub enum Incoming {
    /// None is the end of the connection.
    Push(Option<PushInfo>),
    Reply(Answer),
}

/// The pushes and replies of a connection. They come in two ways, from a task that reads both: a push is handed on before the
/// replies that follow it on the wire. It may be handed on before a reply that it follows.
pub struct Arrivals {
    pushes: UnboundedReceiver<PushInfo>,
    replies: FuturesUnordered<BoxFuture<'static, Answer>>,
    /// A reply, and how many pushes were there already when it came.
    held: Option<(usize, Answer)>,
}

impl Arrivals {
    pub fn new(pushes: UnboundedReceiver<PushInfo>) -> Arrivals {
        Arrivals {
            pushes,
            replies: FuturesUnordered::new(),
            held: None,
        }
    }

    pub fn expect(&self, answer: BoxFuture<'static, Answer>) {
        self.replies.push(answer);
    }

    /// What comes next. Nothing is lost if this is dropped.
    pub async fn next(&mut self) -> Incoming {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Incoming> {
        if self.held.is_none() {
            if let Poll::Ready(push) = self.pushes.poll_recv(context) {
                return Poll::Ready(Incoming::Push(push));
            }
            let Poll::Ready(Some(answer)) = self.replies.poll_next_unpin(context) else {
                return Poll::Pending;
            };
            // Those before it on the wire may have come since this looked for them.
            self.held = Some((self.pushes.len(), answer));
        }
        match self.held.take() {
            Some((before @ 1.., answer)) => {
                self.held = Some((before - 1, answer));
                let push = self.pushes.poll_recv(context);
                push.map(Incoming::Push)
            }
            Some((0, answer)) => Poll::Ready(Incoming::Reply(answer)),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use redis::PushKind;
    use tokio::sync::mpsc::unbounded_channel;

    fn push(name: &str) -> PushInfo {
        PushInfo {
            kind: PushKind::Other(name.to_owned()),
            data: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_push_that_comes_while_a_reply_is_looked_for_is_handed_on_before_it() {
        let (sender, pushes) = unbounded_channel();
        let mut arrivals = Arrivals::new(pushes);
        for _ in 0..2 {
            let sender = sender.clone();
            let answer = async move {
                for name in ["one", "two"] {
                    sender.send(push(name)).unwrap();
                }
                (Tag::Ping, BootTime(0), None)
            };
            arrivals.expect(answer.boxed());
        }
        let mut came = Vec::new();
        for _ in 0..6 {
            came.push(match arrivals.next().await {
                Incoming::Push(Some(PushInfo { kind, .. })) => kind.to_string(),
                Incoming::Push(None) => "end".to_owned(),
                Incoming::Reply(_) => "reply".to_owned(),
            });
        }
        let in_order = came.iter().position(|what| what == "reply").unwrap() >= 2;
        assert!(in_order, "{came:?}");
        assert_eq!(came.last().map(String::as_str), Some("reply"));
        assert!(arrivals.next().now_or_never().is_none());
        drop(sender);
        assert!(matches!(arrivals.next().await, Incoming::Push(None)));
    }
}
