//! Compiles the C shim of the server's weak symbols and makes its Rust declarations. Has a release say of which commit it is.

#[path = "build/commit.rs"]
mod commit;

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    if let Some(commit) = commit::of_release(std::path::Path::new(&folder)) {
        println!("cargo:rustc-env=TETHER_COMMIT={commit}");
    }
    #[cfg(feature = "server")]
    shim();
}

#[cfg(feature = "server")]
fn shim() {
    const SOURCE: &str = "src/shell/sys/shim.c";
    const HEADER: &str = "src/shell/sys/shim.h";
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-changed={HEADER}");

    // `make lint` makes errors of warnings: a newer compiler warns of more, and must not break a build.
    cc::Build::new()
        .file(SOURCE)
        .std("c99")
        .compile("tether_shim");
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    bindgen::builder()
        .header(HEADER)
        .allowlist_function("tether_.*")
        .generate()
        .expect("libclang reads the shim's header")
        .write_to_file(std::path::Path::new(&out).join("shim.rs"))
        .expect("OUT_DIR can be written to");

    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("macos") {
        // The server defines what the shim names, and only once it has loaded the module.
        println!("cargo:rustc-link-arg=-Wl,-undefined,dynamic_lookup");
    }
}
