//! Intrusive doubly linked lists of the records of an [`Arena`]: a record can be in several lists, leaves each in O(1), and needs
//! no list node.

use crate::engine::storage::arena::{Arena, Id};

/// A record's neighbours in one chain.
pub struct Link<T> {
    prev: Option<Id<T>>,
    next: Option<Id<T>>,
}

impl<T> Default for Link<T> {
    fn default() -> Self {
        Link {
            prev: None,
            next: None,
        }
    }
}

impl<T> Link<T> {
    /// Whether the record is in the chain.
    #[inline]
    pub fn is_linked(&self) -> bool {
        self.next.is_some()
    }
}

/// A record that can be in a chain with the number `N`.
pub trait Chained<const N: usize>: Sized {
    fn link(&self) -> &Link<Self>;
    fn link_mut(&mut self) -> &mut Link<Self>;
}

/// Records in insertion order.
///
/// Invariant: the chain is a ring: the tail's `next` is the head, and the head's `prev` is the tail. So a chain is four bytes.
pub struct Chain<T, const N: usize> {
    head: Option<Id<T>>,
}

impl<T, const N: usize> Default for Chain<T, N> {
    fn default() -> Self {
        Chain { head: None }
    }
}

impl<T: Chained<N>, const N: usize> Chain<T, N> {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    #[inline]
    pub fn head(&self) -> Option<Id<T>> {
        self.head
    }

    #[inline]
    pub fn tail(&self, arena: &Arena<T>) -> Option<Id<T>> {
        self.head.and_then(|head| arena[head].link().prev)
    }

    /// The record before this one. O(1).
    #[inline]
    pub fn before(&self, arena: &Arena<T>, id: Id<T>) -> Option<Id<T>> {
        let prev = arena[id].link().prev;
        prev.filter(|_| self.head != Some(id))
    }

    /// Appends a record that is in no chain with this number. O(1).
    pub fn push(&mut self, arena: &mut Arena<T>, id: Id<T>) {
        let Some(head) = self.head else {
            self.head = Some(id);
            *arena[id].link_mut() = Link {
                prev: Some(id),
                next: Some(id),
            };
            return;
        };
        let tail = arena[head].link().prev.expect("a ring has no end");
        arena[tail].link_mut().next = Some(id);
        arena[head].link_mut().prev = Some(id);
        *arena[id].link_mut() = Link {
            prev: Some(tail),
            next: Some(head),
        };
    }

    /// Removes a record of this chain. O(1).
    pub fn remove(&mut self, arena: &mut Arena<T>, id: Id<T>) {
        let Link { prev, next } = std::mem::take(arena[id].link_mut());
        let (prev, next) = (prev.expect("in a ring"), next.expect("in a ring"));
        if next == id {
            self.head = None;
            return;
        }
        arena[prev].link_mut().next = Some(next);
        arena[next].link_mut().prev = Some(prev);
        if self.head == Some(id) {
            self.head = Some(next);
        }
    }

    /// From the head to the tail.
    #[inline]
    pub fn iter<'a>(&self, arena: &'a Arena<T>) -> impl Iterator<Item = Id<T>> + use<'a, T, N> {
        self.iter_after(arena, None)
    }

    /// From the record after `last` to the tail; without one, from the head.
    #[inline]
    pub fn iter_after<'a>(
        &self,
        arena: &'a Arena<T>,
        last: Option<Id<T>>,
    ) -> impl Iterator<Item = Id<T>> + use<'a, T, N> {
        let head = self.head;
        let mut at = match last {
            Some(last) => arena[last].link().next.filter(|next| Some(*next) != head),
            None => head,
        };
        std::iter::from_fn(move || {
            let id = at?;
            let next = arena[id].link().next;
            at = if next == head { None } else { next };
            Some(id)
        })
    }
}

#[cfg(test)]
mod tests;
