//! A list with inline capacity for one element: nearly every request names one key.

use smallvec::SmallVec;

pub type Few<T> = SmallVec<[T; 1]>;
