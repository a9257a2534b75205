<?php

// What the programs of this folder have in common: they read lines, have their client send what these say, and print the
// replies (see tests/clients/check.py). PHP has no threads: what its client shares it shares with nobody.

[, $host, $port] = $argv;

function answer(callable $call, array $words): string
{
    try {
        $reply = $call(...$words);
    } catch (Throwable $error) {
        return '! ' . strtr($error->getMessage(), "\n", ' ');
    }
    return $reply === null ? 'nil' : (string) $reply;
}

// `$call` is the client's way to send a command as it comes; `$holder` makes a connection that can hold a lock: its way to
// send a command, and the token.
function serve(string $version, callable $call, callable $holder): void
{
    echo "$version\n";
    $held = null;
    while (($line = fgets(STDIN)) !== false) {
        $words = explode(' ', str_replace('%', '0', trim($line)));
        $verb = array_shift($words);
        if ($verb === 'width') {
            echo "1\n";
        } elseif ($verb === 'lines') {
            $made = function () use ($holder, &$held) {
                [$held, $token] = $holder();
                return $token;
            };
            echo answer($made, []) . "\n";
        } else {
            echo answer($verb === 'holder' ? $held : $call, $words) . "\n";
        }
    }
}
