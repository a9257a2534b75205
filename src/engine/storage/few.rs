//! A list that needs no memory of its own for one element: nearly every request is about one key.

use smallvec::SmallVec;

pub type Few<T> = SmallVec<[T; 1]>;
