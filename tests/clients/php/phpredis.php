<?php

require 'adapter.php';

// It gives `false` for null and for an error alike, and an empty array for an array that is null.
function call(Redis $redis, array $words)
{
    $redis->clearLastError();
    $reply = $redis->rawCommand(...$words);
    if ($redis->getLastError() !== null) {
        throw new RuntimeException($redis->getLastError());
    }
    return $reply === false || $reply === [] ? null : $reply;
}

$shared = new Redis();
$shared->connect($host, (int) $port);

$holder = function () use ($host, $port) {
    $me = new Redis();
    $me->connect($host, (int) $port);
    $me->setOption(Redis::OPT_READ_TIMEOUT, 10);
    $me->setOption(Redis::OPT_MAX_RETRIES, 0);
    $token = $me->rawCommand('LOCK.ACQUIRE', 'report', 'WAIT', 6000);
    return [fn (...$words) => call($me, $words), $token === false ? null : $token];
};

serve(phpversion('redis'), fn (...$words) => call($shared, $words), $holder);
