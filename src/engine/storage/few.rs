//! A list that needs no memory of its own for one element: nearly every request is about one key.

use std::ops::{Deref, DerefMut};

#[derive(Clone, Debug)]
pub enum Few<T> {
    One(T),
    /// None, or several.
    Many(Vec<T>),
}

impl<T> Few<T> {
    /// One for each of these.
    pub fn of<S>(items: &[S], make: impl FnMut(&S) -> T) -> Self {
        let mut make = make;
        match items {
            [one] => Few::One(make(one)),
            many => Few::Many(many.iter().map(make).collect()),
        }
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut items = items.into_iter();
        match (items.next(), items.next()) {
            (Some(one), None) => Few::One(one),
            (first, second) => Few::Many(first.into_iter().chain(second).chain(items).collect()),
        }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match self {
            Few::One(one) => std::slice::from_ref(one),
            Few::Many(many) => many,
        }
    }
}

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Few::One(one) => std::slice::from_mut(one),
            Few::Many(many) => many,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_any_number() {
        for count in 0..4 {
            let few: Few<i32> = (0..count).collect();
            assert_eq!(*few, *(0..count).collect::<Vec<_>>());
            assert_eq!(matches!(few, Few::One(_)), count == 1);
        }
    }
}
