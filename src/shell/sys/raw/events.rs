//! Server events, and work for later.

use crate::shell::sys::raw::context::Ctx;
use redis_module::raw as c;
use std::ffi::{CStr, c_void};

/// Work for later, in an execution unit of the module's own.
pub type Job = fn(Ctx<'_>);

/// An event of the server, for the length of its call.
#[derive(Clone, Copy)]
pub struct ServerEvent<'a> {
    pub id: u64,
    /// Which part of it.
    pub subevent: u64,
    data: &'a *mut c_void,
}

impl<'a> ServerEvent<'a> {
    /// # Safety
    /// They are what the server gave to its callback, and `'a` is no longer than that call.
    pub unsafe fn new(id: u64, subevent: u64, data: &'a *mut c_void) -> Self {
        ServerEvent { id, subevent, data }
    }

    /// The structure that comes with events of this id.
    ///
    /// # Safety
    /// With each of them the server passes null or a `T`.
    unsafe fn info<T>(self, id: u64) -> Option<&'a T> {
        // SAFETY: the caller; the structure lives as long as the call.
        (self.id == id).then(|| unsafe { self.data.cast::<T>().as_ref() })?
    }

    /// The client of a `CLIENT_CHANGE`.
    pub fn client(self) -> Option<u64> {
        // SAFETY: what comes with this event.
        let info: Option<&c::RedisModuleClientInfo> =
            unsafe { self.info(c::REDISMODULE_EVENT_CLIENT_CHANGE) };
        info.map(|info| info.id)
    }

    /// The number of the database of a `FLUSHDB`; -1 for all of them.
    pub fn flushed_db(self) -> Option<i32> {
        // SAFETY: what comes with this event.
        let info: Option<&c::RedisModuleFlushInfo> =
            unsafe { self.info(c::REDISMODULE_EVENT_FLUSHDB) };
        info.map(|info| info.dbnum)
    }

    /// The numbers of the databases of a `SWAPDB`.
    pub fn swapped_dbs(self) -> Option<[i32; 2]> {
        // SAFETY: what comes with this event.
        let info: Option<&c::RedisModuleSwapDbInfo> =
            unsafe { self.info(c::REDISMODULE_EVENT_SWAPDB) };
        info.map(|info| [info.dbnum_first, info.dbnum_second])
    }

    /// The name of the module of a `MODULE_CHANGE`.
    pub fn module_name(self) -> Option<&'a CStr> {
        // SAFETY: what comes with this event.
        let info: Option<&c::RedisModuleModuleChange> =
            unsafe { self.info(c::REDISMODULE_EVENT_MODULE_CHANGE) };
        let name = info.map(|info| info.module_name);
        let name = name.filter(|name| !name.is_null());
        // SAFETY: the server's, for the length of the call.
        name.map(|name| unsafe { CStr::from_ptr(name) })
    }

    /// The first and the last slot of each range of a `CLUSTER_SLOT_MIGRATION` or a `CLUSTER_SLOT_MIGRATION_TRIM`.
    pub fn slot_ranges(self) -> Vec<(u64, u64)> {
        // SAFETY: what comes with these events, and in it null or so many ranges.
        let ranges = unsafe {
            let moves: Option<&c::RedisModuleClusterSlotMigrationInfo> =
                self.info(c::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION);
            let trims: Option<&c::RedisModuleClusterSlotMigrationTrimInfo> =
                self.info(c::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION_TRIM);
            let moved = moves.map(|info| info.slots);
            let all = moved.or_else(|| trims.map(|info| info.slots));
            let all = all.and_then(|all| all.as_ref());
            all.map_or(&[][..], |all| all.ranges.as_slice(all.num_ranges as usize))
        };
        let numbers = ranges.iter();
        numbers
            .map(|range| (range.start.into(), range.end.into()))
            .collect()
    }
}
