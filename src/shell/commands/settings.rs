//! `tether.*`: CONFIG GET and SET, and lines in redis.conf after `loadmodule`.

use crate::engine::{Engine, Event, Limits};
use crate::policy::losses::LossLog;
use crate::policy::program::{NONE, read_ids, write_ids};
use crate::policy::server::Wanted;
use crate::shell::bridge::losses;
use crate::shell::bridge::tell::handle;
use crate::shell::guard::guard;
use crate::shell::server::private;
use crate::shell::state::{Settings, shell};
use crate::shell::sys::raw::{self, Ctx, Str, Text, api, c_string};
use redis_module::raw as c;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::ptr::null_mut;

/// A numeric setting. Its default is what `Limits` and `Settings` begin with.
struct Number {
    name: &'static CStr,
    least: u32,
    most: u32,
    place: Place,
}

/// Where its value is.
enum Place {
    Limits(fn(&mut Limits) -> &mut u32),
    Settings(fn(&mut Settings) -> &mut u32),
    Log,
}

const A_DAY_MS: u32 = 86_400_000;
const LOG_MAX_LEN: u32 = 1024;
const BACKSTOP: &CStr = c"cluster-backstop";

const NUMBERS: &[Number] = &[
    limit(c"max-watches-per-client", 1, |limits| {
        &mut limits.watches_per_client
    }),
    limit(c"max-watch-bytes-per-client", 1, |limits| {
        &mut limits.watch_bytes_per_client
    }),
    limit(c"max-watch-bytes", 1, |limits| &mut limits.watch_bytes),
    limit(c"max-keys-per-client", 1, |limits| {
        &mut limits.keys_per_client
    }),
    limit(c"max-sessions", 0, |limits| &mut limits.sessions),
    limit(c"max-sessions-per-user", 0, |limits| {
        &mut limits.sessions_per_user
    }),
    // At least what SESSION.START takes without GRACE.
    setting(c"max-grace", 10_000, A_DAY_MS, |settings| {
        &mut settings.max_grace_ms
    }),
    // The kernel takes no more than 32,767 seconds between probes.
    setting(c"peer-timeout", 0, 30_000_000, |settings| {
        &mut settings.peer_timeout_ms
    }),
    setting(BACKSTOP, 0, A_DAY_MS, |settings| {
        &mut settings.cluster_backstop_ms
    }),
    Number {
        name: c"log-max-len",
        least: 0,
        // LOCK.LOG may query the server for each entry in one step.
        most: 16_384,
        place: Place::Log,
    },
    setting(c"quarantine", 0, A_DAY_MS, |settings| {
        &mut settings.quarantine_ms
    }),
];

const fn limit(name: &'static CStr, least: u32, of: fn(&mut Limits) -> &mut u32) -> Number {
    Number {
        name,
        least,
        most: u32::MAX,
        place: Place::Limits(of),
    }
}

const fn setting(
    name: &'static CStr,
    least: u32,
    most: u32,
    of: fn(&mut Settings) -> &mut u32,
) -> Number {
    Number {
        name,
        least,
        most,
        place: Place::Settings(of),
    }
}

impl Number {
    fn default(&self) -> u32 {
        match self.place {
            Place::Limits(of) => *of(&mut Limits::default()),
            Place::Settings(of) => *of(&mut Settings::default()),
            Place::Log => LOG_MAX_LEN,
        }
    }

    fn get(&self) -> u32 {
        let shell = shell();
        match self.place {
            Place::Limits(of) => *of(&mut shell.engine.with(Engine::limits)),
            Place::Settings(of) => *of(&mut settings()),
            Place::Log => shell.losses.with(LossLog::most) as u32,
        }
    }

    fn set(&self, value: u32) {
        let engine = &shell().engine;
        match self.place {
            Place::Limits(of) => {
                let mut limits = engine.with(Engine::limits);
                *of(&mut limits) = value;
                engine.with_mut(|engine| engine.set_limits(limits));
            }
            Place::Settings(of) => change(|settings| *of(settings) = value),
            Place::Log => losses::set_most(value as usize),
        }
        if self.name == BACKSTOP {
            set_backstop();
        }
    }
}

/// A shorter TTL could not be refreshed reliably in time.
const LEAST_BACKSTOP_MS: u32 = 1000;

/// Applies the setting `cluster-backstop`, which has an effect only in a cluster.
fn set_backstop() {
    let shell = shell();
    let ms = match settings().cluster_backstop_ms {
        ms if ms == 0 || !shell.server.get().is_cluster => 0,
        ms => ms.max(LEAST_BACKSTOP_MS),
    };
    shell
        .engine
        .with_mut(|engine| engine.set_backstop(ms.into()));
    if let Some(ctx) = raw::detached().filter(|_| !shell.is_replica()) {
        handle(ctx, Event::RenewAll);
    }
}

/// Values of `private-functions`.
const WANTED: [(&CStr, Wanted); 4] = [
    (c"known", Wanted::Known),
    (c"tested", Wanted::Tested),
    (c"always", Wanted::Always),
    (c"never", Wanted::Never),
];

fn settings() -> Settings {
    shell().settings.get()
}

fn change(act: impl FnOnce(&mut Settings)) {
    let mut settings = settings();
    act(&mut settings);
    shell().settings.set(settings);
}

/// Registers all settings and reads their lines of the configuration file. Once, at load. Or says what the server refuses.
pub fn register(ctx: Ctx<'_>) -> Result<(), String> {
    // The server does not apply a default, so apply it here.
    losses::set_most(LOG_MAX_LEN as usize);
    for number in NUMBERS {
        is_registered(number.name, register_number(ctx, number))?;
    }
    is_registered(RESP2_PUSH, register_resp2_push(ctx))?;
    is_registered(PRIVATE_FUNCTIONS, register_private_functions(ctx))?;
    is_registered(QUALIFIED, register_qualified(ctx))?;
    // SAFETY: the table, the context.
    let loaded = unsafe { api!(RedisModule_LoadConfigs(ctx.as_ptr())) };
    if loaded != c::REDISMODULE_OK as c_int {
        return Err(
            "the value of a tether.* setting, which it names in the line before".to_owned(),
        );
    }
    drop_unknown(ctx);
    // The server does not apply a default, so apply it here.
    set_backstop();
    Ok(())
}

fn is_registered(name: &CStr, code: c_int) -> Result<(), String> {
    let refused = || format!("the setting tether.{}", name.to_string_lossy());
    (code == c::REDISMODULE_OK as c_int)
        .then_some(())
        .ok_or_else(refused)
}

const RESP2_PUSH: &CStr = c"resp2-push";
const PRIVATE_FUNCTIONS: &CStr = c"private-functions";
const QUALIFIED: &CStr = c"qualified";

fn register_number(ctx: Ctx<'_>, number: &'static Number) -> c_int {
    // SAFETY: the table, the context; the table of numbers lives as long as the module.
    unsafe {
        api!(RedisModule_RegisterNumericConfig(
            ctx.as_ptr(),
            number.name.as_ptr(),
            number.default().into(),
            c::REDISMODULE_CONFIG_DEFAULT,
            number.least.into(),
            number.most.into(),
            Some(get_number),
            Some(set_number),
            None,
            std::ptr::from_ref(number).cast_mut().cast::<c_void>()
        ))
    }
}

fn register_resp2_push(ctx: Ctx<'_>) -> c_int {
    // SAFETY: the table, the context.
    unsafe {
        api!(RedisModule_RegisterBoolConfig(
            ctx.as_ptr(),
            RESP2_PUSH.as_ptr(),
            1,
            c::REDISMODULE_CONFIG_DEFAULT,
            Some(get_resp2_push),
            Some(set_resp2_push),
            None,
            null_mut()
        ))
    }
}

/// Makes the server drop unknown settings of `MODULE LOADEX`. Otherwise it keeps them as pending, tries to unload the
/// module when it finds them, and crashes, since the module's data type forbids that. A refused setting makes the server
/// drop all pending ones, so this refuses one. Not during server start, where pending settings belong to other modules.
fn drop_unknown(ctx: Ctx<'_>) {
    // Whoever loads it later is connected, and no command resets this number.
    let connections = ctx.server_info(c"clients", c"connected_clients");
    if connections.is_none_or(|count| count == "0") {
        return;
    }
    shell().refuses_settings.set(true);
    // SAFETY: the table, the context.
    unsafe { api!(RedisModule_LoadConfigs(ctx.as_ptr())) };
    shell().refuses_settings.set(false);
}

/// Why a setting is refused on behalf of [`drop_unknown`].
const NO_MISTAKE: &CStr = c"this is no mistake: what MODULE LOADEX has named that does not exist, if anything, is ignored";

/// Does what a setter is called for, or tells the server why not.
///
/// # Safety
/// `error` is the setter's, where the server wants the reason of a refusal.
unsafe fn set(
    error: *mut *mut c::RedisModuleString,
    act: impl FnOnce() -> Result<(), &'static CStr>,
) -> c_int {
    let is_set = match shell().refuses_settings.get() {
        true => Err(NO_MISTAKE),
        false => guard(Ok(()), act),
    };
    let Err(why) = is_set else {
        return c::REDISMODULE_OK as c_int;
    };
    let (start, length) = (why.as_ptr(), why.count_bytes());
    // SAFETY: the table, the caller; the server takes the string over.
    unsafe { *error = api!(RedisModule_CreateString(null_mut(), start, length)) };
    c::REDISMODULE_ERR as c_int
}

fn register_private_functions(ctx: Ctx<'_>) -> c_int {
    let mut words = WANTED.map(|(word, _)| word.as_ptr());
    let numbers: [c_int; WANTED.len()] = std::array::from_fn(|place| place as c_int);
    // SAFETY: the table, the context; words and numbers, as many as said, are copied.
    unsafe {
        api!(RedisModule_RegisterEnumConfig(
            ctx.as_ptr(),
            PRIVATE_FUNCTIONS.as_ptr(),
            0,
            c::REDISMODULE_CONFIG_DEFAULT,
            words.as_mut_ptr(),
            numbers.as_ptr(),
            WANTED.len() as c_int,
            Some(get_private_functions),
            Some(set_private_functions),
            None,
            null_mut()
        ))
    }
}

unsafe extern "C" fn get_private_functions(_name: *const c_char, _data: *mut c_void) -> c_int {
    let wanted = || settings().private_functions;
    guard(0, || {
        let place = WANTED.iter().position(|(_, one)| *one == wanted());
        place.unwrap_or_default() as c_int
    })
}

unsafe extern "C" fn set_private_functions(
    _name: *const c_char,
    value: c_int,
    _data: *mut c_void,
    error: *mut *mut c::RedisModuleString,
) -> c_int {
    let act = || {
        let place = usize::try_from(value).unwrap_or_default();
        let wanted = WANTED.get(place).map(|(_, wanted)| *wanted);
        change(|settings| settings.private_functions = wanted.unwrap_or_default());
        private::decide_again();
        Ok(())
    };
    // SAFETY: the server's argument.
    unsafe { set(error, act) }
}

fn register_qualified(ctx: Ctx<'_>) -> c_int {
    // SAFETY: the table, the context; the default is copied.
    unsafe {
        api!(RedisModule_RegisterStringConfig(
            ctx.as_ptr(),
            QUALIFIED.as_ptr(),
            c_string(NONE).as_ptr(),
            c::REDISMODULE_CONFIG_DEFAULT,
            Some(get_qualified),
            Some(set_qualified),
            None,
            null_mut()
        ))
    }
}

/// The server does not free what it is given; it is kept until it asks again.
unsafe extern "C" fn get_qualified(
    _name: *const c_char,
    _data: *mut c_void,
) -> *mut c::RedisModuleString {
    guard(null_mut(), || {
        let ids = shell().qualified.with(|ids| write_ids(ids));
        let text = Text::new(ids.as_bytes());
        let string = text.as_str().as_ptr();
        shell().qualified_text.set(Some(text));
        string
    })
}

unsafe extern "C" fn set_qualified(
    _name: *const c_char,
    value: *mut c::RedisModuleString,
    _data: *mut c_void,
    error: *mut *mut c::RedisModuleString,
) -> c_int {
    let act = || {
        // SAFETY: the server's argument, for the length of this call.
        let value = unsafe { Str::new(value) };
        let ids = std::str::from_utf8(value.bytes()).ok().and_then(read_ids);
        let ids = ids
            .ok_or(c"none, or build ids as tether qualify prints them, with spaces between them")?;
        shell().qualified.with_mut(|known| *known = ids);
        private::decide_again();
        Ok(())
    };
    // SAFETY: the server's argument.
    unsafe { set(error, act) }
}

unsafe extern "C" fn get_number(_name: *const c_char, number: *mut c_void) -> c_longlong {
    // SAFETY: what `register` gave, an entry of a table that is never freed.
    let number = unsafe { &*number.cast::<Number>() };
    guard(number.default().into(), || number.get().into())
}

unsafe extern "C" fn set_number(
    _name: *const c_char,
    value: c_longlong,
    number: *mut c_void,
    error: *mut *mut c::RedisModuleString,
) -> c_int {
    // SAFETY: as in `get_number`.
    let number = unsafe { &*number.cast::<Number>() };
    let act = || {
        // The server has checked the value against the entry's bounds.
        number.set(u32::try_from(value).unwrap_or(u32::MAX));
        Ok(())
    };
    // SAFETY: the server's argument.
    unsafe { set(error, act) }
}

unsafe extern "C" fn get_resp2_push(_name: *const c_char, _data: *mut c_void) -> c_int {
    guard(1, || c_int::from(settings().resp2_push))
}

unsafe extern "C" fn set_resp2_push(
    _name: *const c_char,
    value: c_int,
    _data: *mut c_void,
    error: *mut *mut c::RedisModuleString,
) -> c_int {
    let act = || {
        change(|settings| settings.resp2_push = value != 0);
        Ok(())
    };
    // SAFETY: the server's argument.
    unsafe { set(error, act) }
}
