<?php

require 'Predis/autoload.php';
require 'adapter.php';

function call(Predis\Client $redis, array $words)
{
    $reply = $redis->executeRaw($words, $failed);
    return $failed ? throw new RuntimeException($reply) : $reply;
}

$shared = new Predis\Client(['host' => $host, 'port' => $port]);

$holder = function () use ($host, $port) {
    $me = new Predis\Client(['host' => $host, 'port' => $port, 'read_write_timeout' => 10]);
    $token = $me->executeRaw(['LOCK.ACQUIRE', 'report', 'WAIT', '6000']);
    return [fn (...$words) => call($me, $words), $token];
};

serve(Predis\Client::VERSION, fn (...$words) => call($shared, $words), $holder);
